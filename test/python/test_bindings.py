"""What is made of the bindings in ``dialects/mlir.py``."""

from attn_opt.dialects import make_context
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.rewriting import ops_of

TEXT = """
func.func @f(%a: f32, %b: f32) -> f32 {
  %c = arith.addf %a, %a : f32
  %d = arith.mulf %c, %a : f32
  return %d : f32
}"""


def test_ops_are_keys_whatever_becomes_of_them():
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT)
        block = module.body.operations[0].regions[0].blocks[0]
        added, multiplied, end = ops_of(block)
        numbers = {added: 0, multiplied: 1, end: 2}
        multiplied.operands[0] = block.arguments[1]
        multiplied.attributes["name"] = ir.UnitAttr.get()
        assert [numbers[op] for op in ops_of(block)] == [0, 1, 2]
        assert numbers[end.operands[0].owner] == numbers[multiplied.opview] == 1
        assert multiplied != None and None != multiplied and multiplied != 1  # noqa: E711, SIM300
        added.erase()
        assert multiplied not in [added] and added not in [multiplied]
        for _ in range(100):  # some of them where the erased one was
            with ir.InsertionPoint(end):
                other = multiplied.clone().operation
            assert other not in numbers
            other.erase()
