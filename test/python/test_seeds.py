"""ByteIR's five attention examples give the loop nests that ByteIR prints, where the examples are at hand."""

from collections import Counter
from pathlib import Path

import pytest
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.passes import lookup

SEEDS = Path(__file__).parents[2].parent / "shared" / "seeds" / "byteir"
CASES = {
    "dot_attention": ((4, 0, 8), (2, 1, 0)),
    "multihead_attention": ((2, 0, 8, 0, 4), (0, 1, 4, 3, 2)),
    "multihead_attention_tile_3d": None,
    "split_head_attention_prologue": None,
    "split_head_multiquery_attention": None,
}

pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason=f"ByteIR's examples are not at {SEEDS}")


def loops(module: ir.Module) -> list[ir.Operation]:
    """The one nest of scf.for loops in the module, outer to inner."""
    found = []

    def visit(op):
        if op.name == "scf.for":
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def bounds(loop: ir.Operation) -> list[int]:
    return [v.owner.attributes["value"].value for v in list(loop.operands)[:3]]


def signature(op: ir.Operation) -> str:
    """What an op is, without the names of its operands and its location."""
    attributes = {name: str(op.attributes[name]) for name in op.attributes}
    kinds = [str(v.type) for v in op.operands], [str(v.type) for v in op.results]
    return f"{op.name} {kinds} {sorted(attributes.items())}"


def body(loop: ir.Operation) -> Counter:
    return Counter(signature(o.operation) for o in list(loop.regions[0].blocks[0].operations)[:-1])


@pytest.mark.parametrize("name", CASES)
def test_loop_nest_is_byteirs(name):
    context = make_context()
    with context:
        found = parse_module((SEEDS / f"{name}.input.mlir").read_text(), name, context)
        expected = parse_module((SEEDS / f"{name}.expected.mlir").read_text(), name, context)
        options = CASES[name]
        (lookup("fuse-attention")(*options) if options else lookup("transform-interpreter")()).run(found.operation)
        ours, theirs = loops(found), loops(expected)
        assert [bounds(loop) for loop in ours] == [bounds(loop) for loop in theirs]
        assert ["__byteir_parallel__" in loop.attributes for loop in ours] == [
            "__byteir_parallel__" in loop.attributes for loop in theirs
        ]
        carried = [[str(r.type) for r in loop.results] for loop in ours]
        for kinds, loop in zip(carried, theirs, strict=True):
            assert Counter(kinds) <= Counter(str(r.type) for r in loop.results)
        inner, reference = body(ours[-1]), body(theirs[-1])
        # Their print carries values that are dead: what stores and slices these may be absent.
        dead = len(theirs[-1].results) - len(ours[-1].results)
        missing = reference - inner
        assert all(s.startswith(("tensor.insert_slice", "tensor.extract_slice")) for s in missing)
        assert missing.total() <= 2 * dead
        extra = inner - reference
        assert all(s.startswith("tensor.empty") for s in extra) and extra.total() <= dead
