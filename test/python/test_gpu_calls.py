"""Calls of kernels on a GPU, by a driver that notes down what is launched: no GPU is needed."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile, load
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import cuda_arrays, cuda_driver, dlpack
from fake_tensors import K, Q, Tensor, V, arguments, graph, tensor


def test_tensors_are_passed_in_place_on_the_callers_stream(gpu, library):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    q, k, v = arguments()
    out = kernel(q, k, v)
    (launch,) = gpu.launches
    assert isinstance(out, Tensor) and out.shape == Q and out.dtype == np.float32
    assert launch.stream == 77 and launch.grid == (4, 1, 1) and launch.kernel == "attention_0"
    words = [launch.word(i) for i in range(len(launch.parameters))]
    assert words == [x for a in (q, k, v, out) for x in (a.ctypes.data, a.strides[0] // a.itemsize, 64)]
    assert gpu.calls["cuMemAlloc_v2"] == 0 and gpu.calls["cuCtxSynchronize"] == 0


def test_a_kernel_that_follows_another_one_may_be_launched_early(gpu, library):
    case = Attention(batch=1, heads=2, queries=1, keys=1024, head_size=64, element="f16")
    kernel = compile(case.text(), target="nvidia", arch="sm_90a", split_keys=2)
    kernel(tensor((1, 2, 1, 64)), tensor((1, 2, 1024, 64)), tensor((1, 2, 1024, 64)))
    assert [(launch.kernel, launch.early) for launch in gpu.launches] == [("attention_0", False), ("attention_1", True)]
    ptx = kernel.ir("ptx")
    first, second = ptx[ptx.index(".entry attention_0") :].split(".entry attention_1")
    assert "griddepcontrol.launch_dependents" in first and "griddepcontrol.wait" not in first
    assert "ld.global" not in second.partition("griddepcontrol.wait")[0] and "griddepcontrol.wait" in second


def test_a_second_call_does_nothing_but_launch(gpu, library):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    kernel(*arguments())
    before = gpu.calls.copy()
    q, k, v = arguments()
    kernel(q, k, v)
    assert gpu.calls - before == {"cuLaunchKernelEx": 1}
    assert gpu.launches[-1].word(0) == q.ctypes.data


def test_strides_and_addresses_that_are_not_dense_take_a_kernel_for_any(gpu, library):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    q, k, v = arguments()
    every_other = tensor((2, 70, 128))[:, :, ::2]
    every_other.device = 0
    with pytest.warns(UserWarning, match=r"strides \(8960, 128, 2\): its rows are not dense and aligned to 16 bytes"):
        kernel(every_other, k, v)
    assert [gpu.launches[-1].word(i) for i in range(4)] == [every_other.ctypes.data, 8960, 128, 2]
    with pytest.warns(UserWarning, match="no multiple of 16"):
        kernel(q, tensor(K, offset=2), v)
    assert len(gpu.loaded) == 2  # both are one kernel


@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize("moved", [(0,), (1,), (2,), (1, 2)], ids=str)
def test_rows_that_are_another_dimension_take_a_kernel_for_them(gpu, library, moved):
    kernel = compile(graph(dynamic=True), target="nvidia", arch="sm_80")
    for _ in range(2):
        given = [tensor((2, n, 64)) for n in (72, 96, 96)]
        for i in moved:
            given[i] = tensor((2, 64, given[i].shape[1])).transpose(0, 2, 1)
            given[i].device = 0
        assert kernel(*given).shape == (2, 72, 64) and len(gpu.loaded) == 1
    kernel(*(tensor((2, n, 64)) for n in (72, 96, 96)))
    assert len(gpu.loaded) == 2  # what dense rows take
    first, second, dense = (
        [n for i in range(len(launch.parameters)) if (n := launch.word(i)) < 1 << 20] for launch in gpu.launches
    )
    assert first == second != dense and {72 if i == 0 else 96 for i in moved} <= set(first)


MERGED = """
func.func @scaled(%x: tensor<2x3x40x64xf16>) -> tensor<6x40xf16> {
  %zero = arith.constant 0.0 : f16
  %rows = tensor.collapse_shape %x [[0, 1], [2], [3]] : tensor<2x3x40x64xf16> into tensor<6x40x64xf16>
  %empty = tensor.empty() : tensor<6x40xf16>
  %init = linalg.fill ins(%zero : f16) outs(%empty : tensor<6x40xf16>) -> tensor<6x40xf16>
  %sums = linalg.reduce { arith.addf } ins(%rows : tensor<6x40x64xf16>) outs(%init : tensor<6x40xf16>) dimensions = [2]
  return %sums : tensor<6x40xf16>
}"""


def test_an_argument_two_of_whose_dimensions_are_used_as_one_is_copied_where_they_stand_apart(gpu, library):
    """As batch entries and heads are, of what has tokens between them; it was an error, in the midst of training."""
    kernel = compile(MERGED, target="nvidia", arch="sm_80")
    x = tensor((2, 40, 3, 64)).transpose(0, 2, 1, 3)
    x.device = 0
    with pytest.warns(UserWarning, match=r"argument 0 is copied at each call, .* with dimensions 0 and 1 as one"):
        kernel(x)
    kernel(x)  # told once
    dense = tensor((2, 3, 40, 64))
    kernel(dense)
    words = [{launch.word(i) for i in range(len(launch.parameters))} for launch in gpu.launches]
    assert not any(x.ctypes.data in one for one in words) and any(dense.ctypes.data in one for one in words)
    with pytest.warns(UserWarning, match="no result is made in the memory of donated argument 0"):
        written = compile(MERGED.replace("xf16>)", "xf16> {bufferization.writable = true})", 1), target="nvidia")
    with pytest.raises(CompileError, match="make it contiguous"):
        written(x)


def test_sizes_are_of_each_call(gpu, library):
    kernel = compile(graph(dynamic=True), target="nvidia", arch="sm_80")
    for m, k in ((70, 90), (65, 1), (129, 64)):
        out = kernel(tensor((2, m, 64)), tensor((2, k, 64)), tensor((2, k, 64)))
        assert out.shape == (2, m, 64) and gpu.launches[-1].grid[0] == 2 * -(-m // 64)
    assert kernel(tensor((2, 0, 64)), tensor((2, 5, 64)), tensor((2, 5, 64))).shape == (2, 0, 64)
    assert len(gpu.launches) == 3
    with pytest.raises(CompileError, match="dimension 1 of argument 2 must be 90, as dimension 1 of argument 1"):
        kernel(tensor(Q), tensor(K), tensor((2, 80, 64)))


def test_few_queries_have_kernels_of_their_own(gpu, library, tmp_path):
    sizes = {"batch": 3, "heads": 8, "heads_kv": 2, "queries": 5, "keys": 70, "head_size": 64, "element": "f16"}
    compile(Attention(**sizes, dynamic=True).text(), target="nvidia", arch="sm_80").save(tmp_path / "kernel")
    kernel = load(tmp_path / "kernel")

    def kernels(batch, queries, keys):
        gpu.launches.clear()
        q, kv = (batch, 8, queries, 64), (batch, 2, keys, 64)
        assert kernel(tensor(q), tensor(kv), tensor(kv)).shape == q
        return [launch.kernel.removeprefix("attention_") for launch in gpu.launches]

    assert kernels(3, 16, 70) == ["few_blocks_0", "few_blocks_1"], "keys are split"
    assert kernels(33, 1, 70) == ["few_blocks_0", "few_blocks_1"] and gpu.launches[0].grid[0] % 66 == 0
    assert kernels(34, 1, 70) == ["few_queries_0"] and gpu.launches[0].grid[0] == 68
    assert kernels(8, 64, 70) == ["few_blocks_0", "few_blocks_1"] and kernels(9, 64, 70) == ["0"]
    assert kernels(17, 32, 70) == ["few_queries_0"] and kernels(17, 33, 70) == ["0"]
    assert kernels(3, 65, 70) == ["0"] and kernels(34, 65, 70) == ["0"]


@pytest.mark.slow
def test_work_is_for_as_many_multiprocessors_as_there_are(gpu, library):
    """Blocks that go from tile to tile; tiles that are chosen so that none waits; parts of keys."""

    def kernels(multiprocessors, given=None, **sizes):
        fields = {"batch": 4, "heads": 16, "queries": 1024, "keys": 1024, "head_size": 128, "element": "f16", **sizes}
        q, k = ((fields["batch"], fields["heads"], fields[n], 128) for n in ("queries", "keys"))
        gpu.multiprocessors = multiprocessors
        cuda_driver.driver().multiprocessors.cache_clear()
        compile(Attention(**fields).text(), target="nvidia", multiprocessors=given)(tensor(q), tensor(k), tensor(k))
        return gpu.launches[-1].grid[0], gpu.launches[-1].kernel

    assert kernels(132)[0] == 132 and kernels(114)[0] == 114 and kernels(16)[0] == 16
    assert kernels(114, given=78)[0] == 78
    few = {"batch": 1, "heads": 8, "queries": 512, "keys": 4096}
    assert kernels(132, **few)[1] == "attention_1", "keys are split, and merged"
    assert kernels(16, **few)[1] == "attention_0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q, k), "takes 3 arguments, but 2 were given"),
        (lambda q, k, v: (q, k, tensor(V, np.float32)), r"argument 2 must be tensor<2x90x64xf16>, but .* type f32"),
        (
            lambda q, k, v: (q, k, tensor((2, 91, 64))),
            r"argument 2 must be tensor<2x90x64xf16>, but .*91",
        ),
        (lambda q, k, v: (q, k, np.zeros(V, np.float16)), "argument 2 must be on the GPU as others are"),
        (lambda q, k, v: (q, k, tensor(V, device=-1)), "argument 2 must be on the GPU as others are"),
        (lambda q, k, v: (q, k, tensor(V, device=1)), "argument 2 is on GPU 1, but argument 0 is on GPU 0: move it"),
        (lambda q, k, v: (q, k, None), "argument 2 must be on the GPU as others are"),
    ],
)
def test_wrong_arguments(gpu, library, change, message):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    with pytest.raises(CompileError, match=message):
        kernel(*change(*arguments()))
    assert not gpu.launches


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2**31, 1), r"kernels count to 2\^31 along a dimension, but an array has shape \(2147483648, 1\): split it"),
        ((2**31 - 1, 3), r"kernel f_elements_0 needs 6442450944 threads, but they are numbered to 2\^32 only: split"),
    ],
)
def test_more_elements_than_kernels_count(gpu, library, shape, message):
    kind, same = "tensor<?x?xf16>", "affine_map<(i, j) -> (i, j)>"
    text = f"""
func.func @f(%a: {kind}) -> {kind} {{
  %r = linalg.generic {{indexing_maps = [{same}], iterator_types = ["parallel", "parallel"]}} outs(%a : {kind}) {{
  ^bb0(%x: f16):
    %y = arith.negf %x : f16
    linalg.yield %y : f16
  }} -> {kind}
  return %r : {kind}
}}"""
    argument = np.broadcast_to(np.zeros((), np.float16), shape).view(Tensor)
    with pytest.raises(CompileError, match=message):
        compile(text, target="nvidia", arch="sm_80")(argument)


def test_another_device_than_the_current_one(gpu, library):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    kernel(*arguments(device=1))
    kernel(*arguments(device=1))
    assert [launch.stream for launch in gpu.launches] == [78, 78] and library.current_device == 0
    kernel(*arguments())
    assert len(gpu.loaded) == 2  # one a device


def test_a_thread_without_a_context_gets_one(gpu, library):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    kernel(*arguments())
    gpu.statuses.append(cuda_driver.INVALID_CONTEXT)
    kernel(*arguments())
    assert len(gpu.launches) == 2
    gpu.statuses.append(700)
    with pytest.raises(CompileError, match="cuLaunchKernelEx failed: error 700"):
        kernel(*arguments())


def test_numpy_arrays_are_copied(gpu):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    q, k, v = (np.random.default_rng(0).standard_normal(s).astype(np.float16) for s in (Q, K, V))
    out = kernel(q.transpose(0, 2, 1).copy().transpose(0, 2, 1), k, v)
    assert out.shape == Q and np.isnan(out).all()  # as the fake's memory is
    assert gpu.calls["cuMemcpyHtoD_v2"] == 3 and not gpu.memory


class Foreign:
    """An array of another library, as DLPack has it, whose device is said to be a GPU."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return dlpack.CUDA, 0

    def __dlpack__(self, stream):
        assert stream == cuda_driver.LEGACY_STREAM
        return self.array.__dlpack__()


def test_dlpack_both_ways():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    found = dlpack.imported(array, None)
    assert (found.shape, found.strides, found.element) == ((3, 2), (4, 2), "f32")
    assert found.pointer == array.ctypes.data and found.device_type == dlpack.CPU
    memory, waits = np.arange(6, dtype=np.float16), []
    out = dlpack.Exported(memory.ctypes.data, (2, 3), "f16", dlpack.CPU, 0, memory, waits.append)
    view = np.from_dlpack(out)
    np.testing.assert_array_equal(view, memory.reshape(2, 3))
    assert view.ctypes.data == memory.ctypes.data and waits == [1]
    before = len(dlpack._exported)
    del view
    assert len(dlpack._exported) == before - 1


def test_arrays_by_dlpack(gpu, monkeypatch):
    taken = []

    class Arrays(cuda_arrays.JaxArrays):
        def leave(self, array, inputs):
            taken.append(array)
            return super().leave(array, inputs)

    class Jax:
        class dlpack:
            from_dlpack = staticmethod(lambda exported: exported)

    monkeypatch.setitem(cuda_arrays._KINDS, __name__, Arrays)
    monkeypatch.setitem(__import__("sys").modules, "jax", Jax)
    cuda_arrays.library.cache_clear()
    cuda_arrays._of_package.cache_clear()
    arrays = [np.zeros(s, np.float16) for s in (Q, K, V)]
    out = compile(graph(), target="nvidia", arch="sm_80")(*map(Foreign, arrays))
    assert [gpu.launches[0].word(3 * i) for i in range(3)] == [a.ctypes.data for a in arrays]
    assert out.__dlpack_device__() == (dlpack.CUDA, 0) and gpu.calls["cuEventRecord"] == 1
    out.ready(5)
    assert gpu.calls["cuStreamWaitEvent"] == 1 and gpu.calls["cuCtxSynchronize"] == 0
    cuda_arrays.library.cache_clear()
    cuda_arrays._of_package.cache_clear()


def test_attn_run(gpu, tmp_path, capfd):
    from attn_opt.compiler.tools.attn_run import main

    file = tmp_path / "graph.mlir"
    file.write_text(graph())
    assert main([str(file), "--target", "nvidia", "--no-check", "--bench"]) == 0
    said = capfd.readouterr().out
    assert "compiled for nvidia" in said and "time " in said and len(gpu.launches) >= 5


def test_tensors_without_memory(gpu, library, monkeypatch):
    """Such as torch's fake ones, whose address is 0."""
    kernel = compile(graph(dynamic=True), target="nvidia", arch="sm_80")
    monkeypatch.setattr(library, "pointer", lambda value: 0 if value.shape[1] in (0, 91) else value.ctypes.data)
    kernel(tensor(Q), tensor((2, 0, 64)), tensor((2, 0, 64)))
    with pytest.raises(CompileError, match="has elements, but no memory"):
        kernel(tensor(Q), tensor((2, 91, 64)), tensor((2, 91, 64)))
    assert len(gpu.launches) == 1
