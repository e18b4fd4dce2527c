"""Kernels of the benchmark table as ptxas makes them: none spills registers, no matmul is serialised."""

import pathlib
import re

import pytest
from attn_opt.compiler import CompileError, compile, pass_manager, pipelines
from attn_opt.compiler.bench.cases import read_cases
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import ptx
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.nvidia.schedule.dealt_tiles import OUTSIDE, deal
from crossed import crossed
from hypothesis import given
from hypothesis import strategies as st
from machine_code import definitions_of_left_operands

CASES = read_cases(pathlib.Path(__file__).parents[2] / "bench" / "gpu_cases.txt", ["--target", "nvidia"])
MAXIMA = {"": {}, ", online": {"keep_maximum": False}}  # which softmax, by what a test's name ends with
OPTIONS = {"arch": "sm_90a"}
SERIALISED = re.compile(r"\bC75\d\d\b")

needs_ptxas = pytest.mark.skipif(ptx.find_tool("ptxas") is None, reason="no ptxas")


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("end", MAXIMA)
@pytest.mark.parametrize(("name", "options", "known"), CASES, ids=[name for name, _, _ in CASES])
def test_nothing_is_spilled_or_serialised(name, options, known, end):
    text = compile(options.cases[0][1].text(), target="nvidia", **OPTIONS, **MAXIMA[end]).ir("ptx")
    made = ptx.assemble(text, "sm_90a")
    if known:  # as the table says: a smaller number is to be written there
        most = int(known.removeprefix("spills "))
        assert made.spills <= most and (end or made.spills >= most * 3 // 4), made.log
    else:
        assert made.spills == 0, made.log
    assert not [line for line in made.warnings if SERIALISED.search(line)], made.log
    if "f32" not in name and "decode" not in name:
        assert "cp.async.bulk.tensor" in text and "setmaxnreg" in text


@needs_ptxas
def test_parts_of_keys_are_merged_by_a_thread_for_each_element():
    """Without spills; all that a thread reads is on its way before it computes: waiting is most of the time."""
    case = Attention(batch=1, heads=32, heads_kv=8, queries=1, keys=16384, head_size=128, element="bf16")
    text = compile(case.text(), target="nvidia", arch="sm_90a").ir("ptx")
    made = ptx.assemble(text, "sm_90a")
    assert made is not None and made.spills == 0, made
    (merge,) = [entry for entry in text.split(".visible .entry ") if ".maxntid 64" in entry]
    loads = [found.start() for found in re.finditer(r"ld\.global", merge)]
    assert len(loads) == 3 * 32, merge  # outputs, maxima and sums
    assert sum(at < merge.index("ex2.approx") for at in loads) >= 2 * 32


@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize(("first", "engine", "width"), [(8, True, 16), (4, False, 8), (3, False, 2)])
def test_columns_that_begin_anywhere_are_for_threads(first, engine, width):
    """The engine's boxes begin at multiples of 16 bytes of a row; a thread copies as many as columns are aligned."""
    case = Attention(batch=2, heads=2, queries=300, keys=300, head_size=64, element="f16")
    part = f"[0, 0, 0, {first}] [2, 2, 300, 64] [1, 1, 1, 1] : tensor<2x2x300x80xf16> to tensor<2x2x300x64xf16>"
    text = case.text().replace("%k: tensor<2x2x300x64xf16>", "%kw: tensor<2x2x300x80xf16>")
    text = text.replace("{\n", f"{{\n%k = tensor.extract_slice %kw{part}\n", 1)
    code = compile(text, target="nvidia", arch="sm_90a", split_keys=1, must_fuse=True).ir("ptx")
    assert ("cp.async.bulk" in code) == engine
    copies = set(re.findall(r"cp\.async\.c[ag]\.shared\.global \[%r\d+\], \[%rd\d+\], (\d+)", code))
    assert engine or (str(width) in copies if width > 2 else copies == {"16"})  # two bytes are loaded, and stored


def test_the_copy_engine_can_be_turned_off():
    case = Attention(batch=1, heads=1, queries=256, keys=256, head_size=64, element="f16")
    text = compile(case.text(), target="nvidia", arch="sm_90a", copy_engine=False).ir("ptx")
    assert "cp.async.bulk" not in text and "wgmma" in text


def test_the_maximum_is_kept_or_online():
    """Which one is an option: a kernel that keeps the maximum of the first tile can raise a flag."""
    case = Attention(batch=8, heads=64, queries=512, keys=512, head_size=64, element="f16")
    kept, online = (
        compile(case.text(), target="nvidia", arch="sm_90a", keep_maximum=choice).ir("scheduled")
        for choice in (True, False)
    )
    assert "tile.raise" in kept and "tile.raise" not in online


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("sizes", "head_size", "window"), crossed([(64, 512), (128, 512), (1, 300)], [64, 256], [(None, None), (None, 0)])
)
def test_a_tile_alone_is_computed_again_too(sizes, head_size, window):
    """In a grid of one block, whose number no op reads, the warp that copies still hears of it by a flag."""
    queries, keys = sizes
    case = Attention(batch=1, heads=1, queries=queries, keys=keys, head_size=head_size, element="f16", window=window)
    kernel = compile(case.text(), target="nvidia", arch="sm_90a", split_keys=1)
    scheduled = kernel.ir("scheduled")
    assert "cp.async.bulk.tensor" in kernel.ir("ptx") and "tile.any " not in scheduled
    if window == (None, None):
        assert scheduled.count("tile.raised") == 2  # by those that compute, and by the one that copies


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("heads", "length", "parts"), [(1, 2048, 4), (2, 2048, 2), (4, 1024, 1), (8, 2048, 1)])
def test_keys_are_split_as_far_as_multiprocessors_are_idle(heads, length, parts):
    case = Attention(batch=1, heads=heads, queries=length, keys=length, head_size=64, element="f16")
    explained = str(compile(case.text(), target="nvidia", arch="sm_90a").explain())
    found = re.search(r"split into (\d+) parts", explained)
    assert (int(found[1]) if found else 1) == parts


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("heads", "loops", "fields"),
    [
        (8, "scf.for", {}),  # 128 tiles of 64 rows, of which the last of a head have the most keys: one for each block
        (9, "scf.while", {}),  # 144, dealt
        (33, "scf.for", {}),  # 528, two pairs for each block
        (9, "scf.for", {"dynamic": True}),  # pairs
    ],
)
def test_tiles_are_dealt_where_multiprocessors_have_several(heads, loops, fields):
    sizes = {"batch": 1, "heads": heads, "queries": 1024, "keys": 1024, "head_size": 64, "element": "f16"}
    case = Attention(**sizes, **fields, window=(None, 0))
    kernel = compile(case.text(), target="nvidia", arch="sm_90a", tile_sizes=(1, 1, 64, 0, 64), split_keys=1)
    scheduled = kernel.ir("scheduled")
    assert ("scf.while" in scheduled) == ("_tiles : memref" in scheduled) == (loops == "scf.while")
    pairs = [line for line in scheduled.splitlines() if "scf.for" in line and "%grid_dim_x" in line]
    assert bool(pairs) == (loops == "scf.for")


@given(
    works=st.lists(st.integers(0, 40), min_size=1, max_size=9),
    inner=st.integers(1, 5),
    sequences=st.integers(1, 30),
    blocks=st.integers(1, 20),
    in_part=st.booleans(),
)
def test_every_tile_is_dealt_once(works, inner, sequences, blocks, in_part):
    total = len(works) * inner * sequences
    hands, longest = deal(works, inner, total, blocks, in_part)
    assert len(hands) == blocks and sorted(tile for hand in hands for tile in hand) == list(range(total))
    loads = [sum(works[tile // inner % len(works)] + OUTSIDE for tile in hand) for hand in hands]
    assert max(loads) == longest


@pytest.mark.parametrize(("rows", "heads"), [(16, 128), (32, 64), (64, 32), (8, 24), (7, 50)])
def test_dealt_tiles_end_together(rows, heads):
    """Causal ones: a block has hardly more than the mean, or than the largest tile."""
    works, blocks = list(range(rows, 0, -1)), 132
    _, longest = deal(works, 1, rows * heads, blocks, True)
    least = max(heads * sum(work + OUTSIDE for work in works) / blocks, max(works) + OUTSIDE)
    assert longest <= 1.08 * least
    assert longest < deal(works, 1, rows * heads, blocks, False)[1]


def test_loads_that_depend_on_tiles_are_refused():
    """The warp that copies computes no tiles: what loads depend on has to come from flags (persistent-blocks)."""
    case = Attention(batch=1, heads=1, queries=64, keys=512, head_size=64, element="f16")
    passes = ["raise-attention", "fuse-attention{machine=sm_90a}", *pipelines.nvidia(parts=1)]
    with make_context() as context:
        module = parse_module(case.text(), "test.mlir", context)
        passes = passes[: passes.index("specialize-warps{stages=0}") + 1]
        with pytest.raises(Exception, match="the warp that copies does not compute"):
            pass_manager.run([p for p in passes if not p.startswith("persistent-blocks")], module)


def test_stages_are_an_option():
    case = Attention(batch=8, heads=64, queries=512, keys=512, head_size=64, element="f16")
    texts = [compile(case.text(), target="nvidia", arch="sm_90a", stages=stages).ir("scheduled") for stages in (2, 3)]
    assert "memref<2x" in texts[0] and "memref<3x" not in texts[0] and "memref<3x" in texts[1]


def test_more_stages_than_there_is_memory_for_are_as_many_as_there_is():
    text = Attention(queries=128, keys=1024, head_size=64, element="f16").text()
    most, more = (compile(text, target="nvidia", arch="sm_90a", stages=n).ir("ptx") for n in (100, 10**9))
    assert most == more


def test_tiles_that_no_block_has_memory_for_are_refused():
    text = Attention(queries=512, keys=2048, head_size=256, element="f16").text()
    with pytest.raises(CompileError, match=r"needs \d+ bytes of shared memory, .* \d+ on sm_80: choose"):
        compile(text, target="nvidia", arch="sm_80", tile_sizes=[1, 1, 64, 0, 512])
    for sizes in ({"head_size": 2**58, "value_size": 16}, {"queries": 2**58}):
        text = Attention(**{"batch": 1, "heads": 1, "dynamic": True, "element": "f16"} | sizes).text()
        with pytest.raises(CompileError, match=r"a dimension of a tile has \d+ elements: take smaller tiles"):
            compile(text, target="nvidia", arch="sm_80", tile_sizes=[1, 1, 2**63 - 1, 0, 2**63 - 1])


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        ((512, 64), "1024 threads have 64 registers each, but their matmuls take 80"),
        ((256, 160), "640 threads have 96 registers each, but their matmuls take 106"),
        ((128, 320), "a matmul's tile has 320 columns, Hopper's tensor cores take at most 256"),
    ],
)
def test_tiles_that_ptxas_has_no_machine_code_for_are_refused(tile, message):
    text = Attention(heads=2, queries=3000, keys=3000, element="f16").text()
    with pytest.raises(CompileError, match=message):
        compile(text, target="nvidia", arch="sm_90a", tile_sizes=[1, 1, tile[0], 0, tile[1]])


@pytest.mark.parametrize(
    ("heads", "message"), [(2, "tile has 272 columns"), (1, "single tile has at most .* heads of 256")]
)
def test_heads_that_are_too_large_for_a_tile_are_refused(heads, message):
    text = Attention(heads=heads, head_size=260, keys=300, element="f16").text()
    with pytest.raises(CompileError, match=message):
        compile(text, target="nvidia", arch="sm_90a", split_keys=1, must_fuse=True, tile_sizes=[1, 1, 64, 0, 32])


@pytest.mark.sampled(5)
@needs_ptxas
@pytest.mark.parametrize("fields", [{}, {"element": "f16"}, {"head_size": 128}, {"keys": 1022}], ids=str)
def test_rows_that_are_not_aligned_take_no_registers(fields):
    """What copies them has 32 of them; addresses of all pieces, made before the loop around, would be spilled."""
    sizes = {"batch": 2, "heads": 16, "queries": 1024, "keys": 1023, "head_size": 64, "element": "bf16"}
    graph = Attention(**{**sizes, "bias": "bhqk", **fields})
    text = compile(graph.text(), target="nvidia", **OPTIONS).ir("ptx")
    assert "cp.async.mbarrier.arrive.noinc" in text and "ld.global" not in text
    made = ptx.assemble(text, "sm_90a")
    assert made is not None and made.spills <= 4, made.log
    assert not [line for line in made.warnings if SERIALISED.search(line)], made.log


IN_REGISTERS = {
    "8 bits that become wider": ({"head_size": 160, "value_size": 32, "element": "f8E4M3FN", "output": "f32"}, False),
    "…, up to a length": ({"head_size": 192, "value_size": 24, "element": "f8E4M3FN", "lengths": (129,)}, False),
    "copied by threads": ({"head_size": 160, "value_size": 24}, False),
    "copied by the engine, causal": ({"window": (None, 0)}, True),
    "copied by the engine, a window": ({"window": (-100, 0)}, True),
}


@pytest.mark.sampled(3)
@needs_ptxas
@pytest.mark.parametrize("name", IN_REGISTERS)
def test_queries_in_registers_stay_there(name):
    """ptxas has given their registers away in a loop that reads them again."""
    fields, copy_engine = IN_REGISTERS[name]
    graph = Attention(**{"heads": 2, "queries": 300, "keys": 300, "element": "f16", **fields})
    kernel = compile(graph.text(), target="nvidia", **OPTIONS, copy_engine=copy_engine)
    code = ptx.sass(kernel.ir("ptx"), "sm_90a")
    if code is None:
        pytest.skip("nothing shows machine code")
    found = definitions_of_left_operands(code)
    assert found, "queries are in registers"
    assert not {place: made for place, made in found.items() if len(made) != 1}
