"""Which code a GPU is given, by a driver that notes down what it loads and launches: no GPU is needed."""

import os
import re
import warnings

import numpy as np
import pytest
from attn_opt.compiler import CompileError, cache, compile
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime.program import Program
from attn_opt.dialects.diagnostic import DiagnosedError
from attn_opt.transforms.nvidia.kernels import outline_kernels
from attn_opt.transforms.passes import PassError
from fake_cuda import fake_driver
from fake_tensors import K, Q, V, graph, tensor


def for_many(kernel, stage):
    """The kernels that are not versions for few queries."""
    return kernel.ir(stage).partition("gpu.module @attention_kernels")[2]


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


@pytest.mark.sampled(12, 2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("other", "copied"),
    [
        ({"mask": "bhqk"}, False),
        ({"mask": "bqk"}, True),
        ({"bias": "bhqk"}, False),
        ({"bias": "bqk"}, False),
        ({"bias": "bqk", "heads": 6}, True),
    ],
    ids=str,
)
def test_rows_that_are_not_aligned_are_copied_where_enough_heads_share_them(other, copied, dynamic):
    """Others come through shared memory as they are."""
    sizes = {"batch": 2, "heads": 4, "queries": 100, "keys": 301, "head_size": 64, "element": "f16", "dynamic": dynamic}
    graph = Attention(**{**sizes, **other})
    with fake_driver() as fake:
        kernel = compile(graph.text(), target="nvidia", arch="sm_90a", split_keys=1)
        kernel(*graph.inputs())
        assert [launch.kernel for launch in fake.launches] == ["attention_pad_0"] * copied + ["attention_0"]
        assert ("tile.aligned" in for_many(kernel, "tiles")) == copied
        scheduled = for_many(kernel, "scheduled")
        assert ("tile.copy_rows" in scheduled) != copied, "else threads beside the copy engine bring it"
        assert "tile.load" not in scheduled


@pytest.mark.sampled(2)
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
        assert "tile.load" not in for_many(kernel, "scheduled")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("window", [(None, None), (None, 0)])
def test_parts_of_one_array_have_the_buffers_of_separate_ones(window, head):
    """Where keys waited for values in one ring, and queries for both, packed arrays took 1.4 times as long."""
    sizes = {"batch": 2, "heads": 32, "queries": 1024, "keys": 1024, "head_size": head, "element": "f16"}
    kinds = [{"input_layout": "bshd"}, {"input_layout": "bshd", "packed": "3hd"}]
    texts = [Attention(**sizes, **kind, window=window).text() for kind in kinds]
    separate, packed = (compile(text, target="nvidia", arch="sm_90a").ir("scheduled") for text in texts)
    buffer = r"memref\.alloc\(\) : (memref<.*workgroup>>)"
    assert re.findall(buffer, packed) == re.findall(buffer, separate)


def test_without_versions_that_cannot_be_lowered(monkeypatch):
    graph = Attention(batch=2, heads=4, queries=5, keys=70, head_size=64, element="f16", dynamic=True)
    run = outline_kernels._Outliner.run

    def refused(outliner):
        if "few" in outliner.name:
            raise PassError("not these", outliner.forall)
        run(outliner)

    monkeypatch.setattr(outline_kernels._Outliner, "run", refused)
    monkeypatch.setenv("ATTN_OPT_CACHE", "0")
    with fake_driver() as fake:
        kernel = compile(graph.text(), target="nvidia", arch="sm_80")
        kernel(*graph.inputs())
        assert [launch.kernel for launch in fake.launches] == ["attention_0"]
    assert "few queries have no kernels of their own, and take the time of many: not these" in kernel.explain()


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
    other = compile(text, target="nvidia", arch="sm_80", split_keys=1, tile_sizes=[1, 1, 128, 0, 16])
    with pytest.warns(UserWarning, match="tile sizes") as told:
        other(*map(np.asarray, arguments))  # which goes another way
    assert len(told) == 1 and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(*[tensor((1, 2, 300, 64)) for _ in range(3)])
        gpu.spilled = 64
        compile(text, target="nvidia", arch="sm_80", split_keys=1, tile_sizes=[1, 1, 64, 0, 32])(*arguments)


UNWRITTEN = """func.func @f(%mask: tensor<?xi1>, %a: tensor<?xf32>, %n: index) -> tensor<?xf32> {
  %e = tensor.empty(%n) : tensor<?xf32>
  %o = tensor.empty(%n) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
                                        affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%mask, %a, %e : tensor<?xi1>, tensor<?xf32>, tensor<?xf32>) outs(%o : tensor<?xf32>) {
  ^bb0(%m: i1, %x: f32, %y: f32, %_: f32):
    %z = arith.select %m, %x, %y : f32
    linalg.yield %z : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}"""


def test_what_is_read_before_it_is_written():
    """As by torch's ``empty_like(x).index_put([i], y)``, where experts take their rows: it is memory like any other."""
    kernel = compile(UNWRITTEN, target="nvidia", arch="sm_80")
    with fake_driver(capability=(8, 0)) as fake:
        out = kernel(np.ones(7, bool), np.zeros(7, np.float32), 7)
        assert out.shape == (7,) and len(fake.launches) == 1


OPEN_RESULT = """func.func @f(%x: tensor<16xf32>, %n: index) -> tensor<?xf32> {
  %e = tensor.empty(%n) : tensor<?xf32>
  %y = linalg.exp ins(%x : tensor<16xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}"""


def test_a_size_that_an_argument_has_and_a_result_leaves_open():
    """Canonicalizing computes what is of 16 elements, and casts that."""
    kernel, given = compile(OPEN_RESULT, target="nvidia", arch="sm_80"), (np.zeros(16, np.float32), np.array(16))
    with fake_driver(capability=(8, 0)) as fake:
        for out in (kernel(*given), *kernel.on_host().run(given)):
            assert out.shape == (16,)
        assert len(fake.launches) == 2


@pytest.mark.sampled(5, 2)
@pytest.mark.parametrize("element", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_rows_as_low_as_masks(element, arch):
    """Products of low numbers, as bf16 and f32 have, with log2 e are infinite, or not exact: differences to such rows
    are made before the product, or behind a branch for them, with the copy engine."""
    sizes = {"batch": 2, "heads": 3, "queries": 200, "keys": 300, "head_size": 64, "element": element}
    low = "0fC8000000"  # -2^17
    biased = compile(Attention(**sizes, bias="hqk").text(), target="nvidia", arch=arch).ir("ptx")
    has_branch = (element, arch) == ("bf16", "sm_90a")
    assert (low in biased) == has_branch
    assert bool(re.search(r"fma\.rn\.f32 .*0f3FB8AA3B", biased)) == (has_branch or element == "f16")
    assert low not in compile(Attention(**sizes).text(), target="nvidia", arch=arch).ir("ptx")
