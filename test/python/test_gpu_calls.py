"""Calls of kernels on a GPU, by a driver that notes down what is launched: no GPU is needed."""

import contextlib
import math
import os
import warnings

import numpy as np
import pytest
from attn_opt.compiler import CompileError, cache, compile
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import cuda_arrays, cuda_driver, dlpack
from attn_opt.compiler.runtime.program import Program
from attn_opt.dialects.diagnostic import DiagnosedError
from fake_cuda import fake_driver

Q, K, V = (2, 70, 64), (2, 90, 64), (2, 90, 64)


def graph(dynamic: bool = False) -> str:
    m, k = ("?", "?") if dynamic else ("70", "90")
    q, kv, s, p, r = (f"tensor<2x{d}x{e}>" for d, e in ((f"{m}x64", "f16"), (f"{k}x64", "f16"), (f"{m}x{k}", "f32"),
                                                       (f"{m}x{k}", "f16"), (m, "f32")))  # fmt: skip
    o = f"tensor<2x{m}x64xf32>"
    at = {"m": "(%m)", "k": "(%k)", "mk": "(%m, %k)"} if dynamic else {"m": "()", "k": "()", "mk": "()"}
    return f"""
func.func @attention(%q: {q}, %kk: {kv}, %v: {kv}) -> {o} {{
  %c1 = arith.constant 1 : index
  %m = tensor.dim %q, %c1 : {q}
  %k = tensor.dim %kk, %c1 : {kv}
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %se = tensor.empty{at["mk"]} : {s}
  %s0 = linalg.fill ins(%zero : f32) outs(%se : {s}) -> {s}
  %s = linalg_ext.batch_matmul ins(%q, %kk : {q}, {kv}) outs(%s0 : {s}) layout = "nt"
  %re = tensor.empty{at["m"]} : {r}
  %m0 = linalg.fill ins(%low : f32) outs(%re : {r}) -> {r}
  %a0 = linalg.fill ins(%zero : f32) outs(%re : {r}) -> {r}
  %p:4 = linalg_ext.softmax dimension(2) ins(%s : {s}) 
      outs(%se, %m0, %a0, %re : {s}, {r}, {r}, {r}) : {s}, {r}, {r}, {r}
  %pe = tensor.empty{at["mk"]} : {p}
  %pn = linalg.generic {{indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel"]}} ins(%p#0 : {s}) outs(%pe : {p}) {{
  ^bb0(%x: f32, %y: f16):
    %t = arith.truncf %x : f32 to f16
    linalg.yield %t : f16
  }} -> {p}
  %oe = tensor.empty{at["m"]} : {o}
  %o0 = linalg.fill ins(%zero : f32) outs(%oe : {o}) -> {o}
  %o = linalg_ext.batch_matmul ins(%pn, %v : {p}, {kv}) outs(%o0 : {o}) layout = "nn"
  return %o : {o}
}}"""


class Tensor(np.ndarray):
    """A tensor of a library whose memory kernels use in place. `device`: where it says that it is."""

    device = 0


class Tensors:
    """Stands for torch and CuPy."""

    copies = False
    current_device = 0

    def is_array(self, value):
        return isinstance(value, Tensor) and value.device >= 0

    def key(self, value):
        return value.shape, value.strides, value.dtype, value.device

    def describe(self, value):
        strides = tuple(s // value.itemsize for s in value.strides)
        return cuda_arrays.Array(0, value.shape, strides, cuda_arrays.element_of(value.dtype), value.device)

    def pointer(self, value):
        return value.ctypes.data

    def allocator(self, shape, element, device):
        return lambda: tensor(shape, cuda_arrays.numpy_type(element), device)

    def shaped(self, value, shape):
        return value.reshape(shape)

    def stream(self, device):
        return 77 + device

    def current(self):
        return self.current_device

    @contextlib.contextmanager
    def on(self, device):
        before, self.current_device = self.current_device, device
        yield
        self.current_device = before


def tensor(shape, dtype=np.float16, device=0, offset=0):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 16 + offset
    found = memory[start : start + size].view(dtype).reshape(shape).view(Tensor)
    found.device = device
    return found


@pytest.fixture
def library(monkeypatch):
    found = Tensors()
    monkeypatch.setitem(cuda_arrays._KINDS, __name__, lambda: found)
    cuda_arrays.library.cache_clear()
    cuda_arrays._of_package.cache_clear()
    yield found
    cuda_arrays.library.cache_clear()
    cuda_arrays._of_package.cache_clear()


@pytest.fixture
def gpu():
    with fake_driver() as fake:
        yield fake


def arguments(**options):
    return tensor(Q, **options), tensor(K, **options), tensor(V, **options)


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


def test_results_go_where_the_caller_says(gpu, library):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    target = tensor((2, 64, 70), np.float32).transpose(0, 2, 1)
    wide = tensor((2, 70, 128), np.float32)[:, :, :64]
    wide.device = 0
    assert kernel(*arguments(), out=wide) is wide
    assert [gpu.launches[-1].word(9 + i) for i in range(3)] == [wide.ctypes.data, 70 * 128, 128]
    with pytest.warns(UserWarning, match="reads element by element"):
        assert kernel(*arguments(), out=target) is target
    with pytest.raises(CompileError, match=r"out must be an array of shape \(2, 70, 64\) and type f32"):
        kernel(*arguments(), out=tensor(Q))
    with pytest.raises(CompileError, match="out must be 1 arrays, but 2 were given"):
        kernel(*arguments(), out=(wide, wide))


def test_strides_and_addresses_that_are_not_dense_take_a_kernel_for_any(gpu, library):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    q, k, v = arguments()
    transposed = tensor((2, 64, 70)).transpose(0, 2, 1)
    transposed.device = 0
    with pytest.warns(UserWarning, match=r"strides \(4480, 1, 70\): its rows are not dense and aligned to 16 bytes"):
        kernel(transposed, k, v)
    assert [gpu.launches[-1].word(i) for i in range(4)] == [transposed.ctypes.data, 4480, 1, 70]
    with pytest.warns(UserWarning, match="no multiple of 16"):
        kernel(q, tensor(K, offset=2), v)
    assert len(gpu.loaded) == 2  # both are one kernel


def test_sizes_are_of_each_call(gpu, library):
    kernel = compile(graph(dynamic=True), target="nvidia", arch="sm_80")
    for m, k in ((70, 90), (1, 1), (129, 64)):
        out = kernel(tensor((2, m, 64)), tensor((2, k, 64)), tensor((2, k, 64)))
        assert out.shape == (2, m, 64) and gpu.launches[-1].grid[0] == 2 * -(-m // 64)
    assert kernel(tensor((2, 0, 64)), tensor((2, 5, 64)), tensor((2, 5, 64))).shape == (2, 0, 64)
    assert len(gpu.launches) == 3
    with pytest.raises(CompileError, match="dimension 1 of argument 2 must be 90, as dimension 1 of argument 1"):
        kernel(tensor(Q), tensor(K), tensor((2, 80, 64)))


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


def test_code_for_another_gpu():
    kernel = compile(graph(), target="nvidia", arch="sm_90a")
    with fake_driver(capability=(8, 0)), pytest.raises(CompileError, match="code is for sm_90a, but this GPU is sm_80"):
        kernel(*(np.zeros(s, np.float16) for s in (Q, K, V)))
    old = compile(graph(), target="nvidia", arch="sm_80")
    with fake_driver(capability=(8, 6)) as newer:
        old(*(np.zeros(s, np.float16) for s in (Q, K, V)))
        assert len(newer.launches) == 1


def test_kernels_and_machine_code_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path))
    inputs = [np.zeros(s, np.float16) for s in (Q, K, V)]
    with fake_driver() as first:
        stages = compile(graph(), target="nvidia", arch="sm_80").stages()
        compile(graph(), target="nvidia", arch="sm_80")(*inputs)
        assert first.calls["ptxas"] == 1
    cache.forget()
    with fake_driver() as second:
        monkeypatch.setattr("attn_opt.compiler.lowering.lower", None)
        kernel = compile(graph(), target="nvidia", arch="sm_80")
        kernel(*inputs)
        assert kernel.stages() == stages and ".entry" in kernel.ir("ptx")
        assert second.calls["ptxas"] == 0 and second.loaded == first.loaded
        assert second.launches[0].grid == first.launches[0].grid
    (cubin,) = (name for name in os.listdir(tmp_path) if name.endswith(".cubin"))
    (tmp_path / cubin).write_bytes(b"damaged")
    cache.forget()
    with fake_driver() as third:
        compile(graph(), target="nvidia", arch="sm_80")(*inputs)
        assert third.calls["ptxas"] == 1


def test_kernels_that_share_out_registers_are_not_linked():
    """ptxas gives linked kernels the registers that they start with."""
    with fake_driver(capability=(9, 0)) as fake:
        compile(graph(), target="nvidia", arch="sm_90a", split_keys=1)(*(np.zeros(s, np.float16) for s in (Q, K, V)))
        assert fake.calls["cuLinkComplete"] == 0 and b"setmaxnreg" in fake.loaded[0]


def test_programs_are_plain():
    kernel = compile(graph(dynamic=True), target="nvidia", arch="sm_80")
    program = kernel._runtime.image.program
    assert Program.of(program.plain()) == program and program.sizing() == {0, 1}


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


def test_host_code_by_the_execution_engine(gpu):
    kernel = compile(graph(dynamic=True), target="nvidia", arch="sm_80")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float16) for s in (Q, K, V))
    host = kernel.on_host()
    (out,) = host.run([q, k, v])
    assert out.shape == Q and out.dtype == np.float32 and np.isnan(out).all()  # as the fake's memory is
    (launch,) = gpu.launches
    plain = compile(graph(dynamic=True), target="nvidia", arch="sm_80")
    plain(q, k, v)
    wide = [number for number in range(14) if number % 4 != 1]  # sizes are 32 bits
    assert launch.grid == gpu.launches[1].grid and launch.shared == gpu.launches[1].shared
    strides = [n for n in wide if n % 4]
    assert [launch.word(n) for n in strides] == [gpu.launches[1].word(n) for n in strides]
    sizes = [1, 5, 9, 13, 16, 17]
    assert [launch.word(n) & 0xFFFFFFFF for n in sizes] == [70, 90, 90, 70, 70, 90]
    assert not gpu.memory and gpu.calls["cuStreamCreate"] == gpu.calls["cuStreamDestroy_v2"]
    gpu.statuses.append(700)
    with pytest.raises(DiagnosedError, match="cuLaunchKernel failed: error 700"):
        host.run([q, k, v])
    host.run([q, k, v])


def test_attn_run(gpu, tmp_path, capfd):
    from attn_opt.compiler.tools.attn_run import main

    file = tmp_path / "graph.mlir"
    file.write_text(graph())
    assert main([str(file), "--target", "nvidia", "--no-check", "--bench"]) == 0
    said = capfd.readouterr().out
    assert "compiled for nvidia" in said and "time " in said and len(gpu.launches) >= 5


def test_results_with_heads_in_groups(gpu, library):
    graph = Attention(batch=2, heads=8, heads_kv=2, queries=70, keys=90, head_size=64, element="f16", alibi=True)
    kernel = compile(graph.text(), target="nvidia", arch="sm_80")
    inputs = [tensor(x.shape, x.dtype) for x in graph.inputs()]
    out = kernel(*inputs)
    assert out.shape == (2, 8, 70, 64)
    heads_last = tensor((2, 70, 8, 64)).transpose(0, 2, 1, 3)
    heads_last.device = 0
    kernel(*inputs, out=heads_last)
    # Strides of batch, head of keys, head in its group, row.
    dense, wide = (launch.parameters[-5:] for launch in gpu.launches)
    assert dense == [out.ctypes.data, 8 * 70 * 64, 4 * 70 * 64, 70 * 64, 64]
    assert wide == [heads_last.ctypes.data, 70 * 8 * 64, 4 * 64, 64, 8 * 64]
    kernel.on_host().run([np.asarray(x) for x in inputs])
    assert gpu.launches[-1].grid == gpu.launches[0].grid == (2 * 8 * 2, 1, 1)


O, SPLIT, MERGED = "tensor<2x70x64xf32>", "tensor<1x2x70x64xf32>", "tensor<140x64xf32>"
EXPANDED = f"tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [1, 2, 70, 64] : {O} into {SPLIT}"
COLLAPSED = f"tensor.collapse_shape %o [[0, 1], [2]] : {O} into {MERGED}"


def returning(ops: dict[str, str], results: dict[str, str]) -> str:
    """As `graph`, with `ops` before the end, and `results`: values with their types."""
    made = "".join(f"  {name} = {op}\n" for name, op in ops.items())
    text = graph().replace(f"-> {O} {{\n  %c1", f"-> ({', '.join(results.values())}) {{\n  %c1")
    return text.replace(f"  return %o : {O}", f"{made}  return {', '.join(results)} : {', '.join(results.values())}")


@pytest.mark.parametrize("parts", [1, 2])
def test_results_in_another_shape(gpu, library, parts):
    text = returning({"%r": EXPANDED}, {"%r": SPLIT})
    kernel = compile(text, target="nvidia", arch="sm_80", split_keys=parts)
    assert kernel._runtime.image.program.steps[-1].kind == "expand"
    inputs = arguments()
    out = kernel(*inputs)
    assert out.shape == (1, 2, 70, 64) and out.ctypes.data in gpu.launches[-1].parameters
    given = tensor((1, 2, 70, 64), np.float32)
    assert kernel(*inputs, out=given) is given and given.ctypes.data in gpu.launches[-1].parameters
    with pytest.raises(CompileError, match=r"out must be an array of shape \(1, 2, 70, 64\)"):
        kernel(*inputs, out=tensor((2, 70, 64), np.float32))
    found = compile(text, target="nvidia", arch="sm_80")(*(np.asarray(x) for x in inputs))
    assert found.shape == (1, 2, 70, 64)


def test_results_that_are_one_array(gpu, library):
    text = returning({"%r": EXPANDED, "%f": COLLAPSED}, {"%r": SPLIT, "%f": MERGED, "%o": O})
    kernel = compile(text, target="nvidia", arch="sm_80", split_keys=1)
    results = kernel(*arguments())
    assert [r.shape for r in results] == [(1, 2, 70, 64), (140, 64), (2, 70, 64)]
    assert len({r.ctypes.data for r in results}) == 1
    with pytest.raises(CompileError, match="call without out"):
        kernel(*arguments(), out=tuple(tensor(r.shape, np.float32) for r in results))


def test_results_that_are_arguments(gpu, library):
    flat = "tensor.collapse_shape %q [[0, 1], [2]] : tensor<2x70x64xf16> into tensor<140x64xf16>"
    text = returning({"%f": flat}, {"%o": O, "%f": "tensor<140x64xf16>"})
    kernel = compile(text, target="nvidia", arch="sm_80", split_keys=1)
    q, k, v = arguments()
    _, found = kernel(q, k, v)
    assert found.shape == (140, 64) and found.ctypes.data == q.ctypes.data
    with pytest.raises(CompileError, match="result 1 is no array of its own"):
        kernel(q, k, v, out=(tensor(Q, np.float32), tensor((140, 64))))


def cached_graph() -> str:
    """As `graph`, with keys and values that are parts of a cache, as long as an argument says."""
    text = graph(dynamic=True).replace("tensor<2x?x64xf16>, %v: tensor<2x?x64xf16>", "KV").replace("%kk: KV", "KV")
    part = "[0, 0, 0] [2, %n, 64] [1, 1, 1] : tensor<2x90x64xf16> to tensor<2x?x64xf16>"
    slices = f"{{\n%kk = tensor.extract_slice %kc{part}\n%v = tensor.extract_slice %vc{part}\n"
    return text.replace("KV", "%kc: tensor<2x90x64xf16>, %vc: tensor<2x90x64xf16>, %n: index").replace("{\n", slices, 1)


def test_a_slice_beyond_its_tensor_is_an_error_of_the_call():
    """The length is only passed on to kernels: calls with other ones have the same plan, and are checked as well."""
    q, k, v = (np.zeros(s, np.float16) for s in (Q, K, V))
    with fake_driver() as fake:
        kernel = compile(cached_graph(), target="nvidia", arch="sm_80")
        for n in (0, 90):
            kernel(q, k, v, n)
        assert len(fake.launches) == 2
        for n in (91, -1):
            with pytest.raises(
                CompileError, match=f"dimension 1 of argument 1 is 90, .* 0 to {n} of it, as argument 3"
            ):
                kernel(q, k, v, n)
        assert len(fake.launches) == 2


@pytest.mark.parametrize("in_place", [False, True])
def test_numbers_are_what_their_type_has(library, in_place):
    """Of Python, of numpy, arrays without dimensions; the same for arrays on the host and on the GPU, and checked."""
    made = tensor if in_place else (lambda shape: np.zeros(shape, np.float16))
    q, k, v = map(made, (Q, K, V))
    with fake_driver() as fake:
        kernel = compile(cached_graph(), target="nvidia", arch="sm_80")
        for n in (7, 7.0, np.int32(7), np.uint8(7), np.float32(7), np.array(7), np.array(7, np.int32)):
            kernel(q, k, v, n)
            assert fake.launches[-1].parameters.count(7) == 1
        launches = len(fake.launches)
        for n, said in [
            (7.5, "but is 7.5"),
            (math.nan, "but is nan"),
            (None, "of type NoneType"),
            ("7", "of type str"),
        ]:
            with pytest.raises(CompileError, match=f"argument 3 must be index.*{said}"):
                kernel(q, k, v, n)
        with pytest.raises(CompileError, match=r"argument 3 must be index, a number, but is an array of shape \(1,\)"):
            kernel(q, k, v, np.array([7]))
        for n in (91, np.int32(91), 91.0, np.array(-1)):
            with pytest.raises(CompileError, match="dimension 1 of argument 1 is 90"):
                kernel(q, k, v, n)
        with pytest.raises(CompileError, match=f"argument 3 must be index, but is {2**70}"):
            kernel(q, k, v, 2**70)
        assert len(fake.launches) == launches


def test_results_are_not_written_over_arguments(gpu, library):
    """Of which tiles may be read again; and one memory is one result."""
    kernel = compile(Attention(queries=70, keys=70, element="f16").text(), target="nvidia", arch="sm_80")
    shape = (1, 1, 70, 64)
    whole = tensor((2, *shape))
    q, k, v = (tensor(shape) for _ in range(3))
    for out, message in [(k, "out 0 and argument 1 have memory"), (part(whole, 8), "out 0 and argument 0")]:
        with pytest.raises(CompileError, match=message):
            kernel(part(whole, 0) if out is not k else q, k, v, out=out)
    out = tensor((1, 1, 1, 64))
    spread = np.broadcast_to(out, shape).view(Tensor)
    with pytest.raises(CompileError, match=r"strides \(0, 0, 0, 1\): several of its elements may be one"):
        kernel(q, k, v, out=spread)
    with pytest.raises(CompileError, match="out 0 must be on the GPU as others are, but is a builtins"):
        kernel(q, k, v, out=[out])
    between = tensor((1, 1, 70, 128))
    kernel(between[..., :64], k, v, out=between[..., 64:])
    assert len(gpu.launches) == 1
    with pytest.warns(UserWarning, match="no multiple of 16"):
        kernel(q, k, v, out=tensor(shape, offset=2))
    assert len(gpu.loaded) == 2


def test_tensors_without_memory(gpu, library, monkeypatch):
    """Such as torch's fake ones, whose address is 0."""
    kernel = compile(graph(dynamic=True), target="nvidia", arch="sm_80")
    monkeypatch.setattr(library, "pointer", lambda value: 0 if value.shape[1] in (0, 91) else value.ctypes.data)
    kernel(tensor(Q), tensor((2, 0, 64)), tensor((2, 0, 64)))
    with pytest.raises(CompileError, match="has elements, but no memory"):
        kernel(tensor(Q), tensor((2, 91, 64)), tensor((2, 91, 64)))
    assert len(gpu.launches) == 1


def part(whole, row):
    found = whole.reshape(-1, 64)[row : row + 70].reshape(1, 1, 70, 64)
    found.device = 0
    return found


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("other", "copied"),
    [({"mask": "bhqk"}, False), ({"mask": "bqk"}, True), ({"bias": "bqk"}, True), ({"bias": "bhqk"}, False)],
    ids=str,
)
def test_rows_that_are_not_aligned_are_copied_where_enough_heads_share_them(other, copied, dynamic):
    """Others come through shared memory as they are."""
    sizes = {"batch": 2, "heads": 4, "queries": 100, "keys": 301, "head_size": 64, "element": "f16", "dynamic": dynamic}
    graph = Attention(**sizes, **other)
    with fake_driver() as fake:
        kernel = compile(graph.text(), target="nvidia", arch="sm_90a", split_keys=1)
        kernel(*graph.inputs())
        assert [launch.kernel for launch in fake.launches] == ["attention_pad_0"] * copied + ["attention_0"]
        assert ("tile.aligned" in kernel.ir("tiles")) == copied
        assert ("tile.copy_rows" in kernel.ir("scheduled")) != copied, "else threads beside the copy engine bring it"
        assert "tile.load" not in kernel.ir("scheduled")


@pytest.mark.parametrize("dynamic", [False, True])
def test_heads_whose_rows_are_not_aligned_are_copied_in_one_launch(dynamic):
    graph = Attention(batch=2, heads=4, heads_kv=2, queries=100, keys=301, head_size=33, element="f16", dynamic=dynamic)
    with fake_driver() as fake:
        kernel = compile(graph.text(), target="nvidia", arch="sm_90a", split_keys=1)
        for _ in range(2):
            kernel(*graph.inputs())
        assert [launch.kernel for launch in fake.launches] == ["attention_pad_0", "attention_0"] * 2
        blocks = [-(-2 * heads * rows * 5 // 256) for heads, rows in ((4, 100), (2, 301), (2, 301))]
        assert fake.launches[0].grid[0] == sum(blocks)
        assert "tile.load" not in kernel.ir("scheduled")


def test_without_ptxas_the_driver_compiles_ptx(monkeypatch, tmp_path):
    """As a whole program: its linker would ignore setmaxnreg."""
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path))
    inputs = [np.zeros(s, np.float16) for s in (Q, K, V)]
    with fake_driver(ptxas=False) as fake:
        kernel = compile(graph(), target="nvidia", arch="sm_80")
        kernel(*inputs)
        assert fake.loaded == [kernel.ir("ptx").encode() + b"\0"] and not fake.calls["cuLinkCreate"]


def test_machine_code_that_the_driver_refuses_is_left(monkeypatch, tmp_path):
    """That of a newer ptxas, say."""
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path))
    inputs = [np.zeros(s, np.float16) for s in (Q, K, V)]
    with fake_driver() as fake:
        kernel = compile(graph(), target="nvidia", arch="sm_80")
        ptx = kernel.ir("ptx").encode() + b"\0"
        fake.refused.append(b"\x7fELF" + ptx)
        kernel(*inputs)
        assert fake.loaded == [ptx] and len(fake.launches) == 1


def test_more_shared_memory_than_there_is_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path))
    inputs = [np.zeros(s, np.float16) for s in (Q, K, V)]
    with fake_driver(shared=1000) as fake:
        with pytest.raises(CompileError, match=r"attention_0 needs \d+ bytes of shared memory .* has 1000: .* tiles"):
            compile(graph(), target="nvidia", arch="sm_80")(*inputs)
        assert not fake.launches


def test_tile_sizes_that_make_registers_spill_are_told_of_once(gpu, library):
    """Those that were given: what the rule chooses is what it is."""
    gpu.spilled = 65
    text = Attention(heads=2, queries=300, keys=300, element="f16").text()
    arguments = [tensor((1, 2, 300, 64)) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(text, target="nvidia", arch="sm_80", split_keys=1)(*arguments)
    kernel = compile(text, target="nvidia", arch="sm_80", split_keys=1, tile_sizes=[1, 1, 128, 0, 32])
    with pytest.warns(UserWarning, match=r"tile sizes 1,1,128,0,32 leave .* 65 bytes .*autotune") as told:
        kernel(*arguments)
    assert len(told) == 1 and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(*[tensor((1, 2, 300, 64)) for _ in range(3)])
        gpu.spilled = 64
        compile(text, target="nvidia", arch="sm_80", split_keys=1, tile_sizes=[1, 1, 64, 0, 32])(*arguments)
