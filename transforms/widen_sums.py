"""The pass ``widen-sums``."""

from dataclasses import dataclass

from ..dialects import build
from ..dialects.build import element_of
from ..dialects.mlir import arith, ir
from ..dialects.tiling.structured import indexing_maps, reduces, sole_combiner
from .attention import is_contraction
from .copying import with_operands
from .passes import Pass, option
from .rewriting import ancestors, defining_op, erase_if_unused, ops_in
from .splats import filled_with

COMBINERS = ("arith.addf", "arith.mulf")


@dataclass(frozen=True)
class WidenSums(Pass):
    """Adds up, and multiplies, elements of f16 and bf16 in f32, and rounds once::

        %s = linalg.generic {iterator_types = ["parallel", "reduction"]}
            ins(%x : tensor<64x4096xbf16>) outs(%zeros : tensor<64xbf16>) {
          ^bb0(%a: bf16, %sum: bf16):
            %r = arith.addf %sum, %a : bf16
        }
      becomes
        %w = linalg.generic {iterator_types = ["parallel", "reduction"]}
            ins(%x : tensor<64x4096xbf16>) outs(%wide_zeros : tensor<64xf32>) {
          ^bb0(%a: bf16, %sum: f32):
            %b = arith.extf %a : bf16 to f32
            %r = arith.addf %sum, %b : f32
        }
        %s = linalg.generic { arith.truncf } ins(%w) -> tensor<64xbf16>

    In their own type no more than 256 ones could be counted in bf16, 2048 in f16. Sums of products have accumulators in
    f32 anyway; with `products` the IR says so of those outside of loops over tiles, whose factors become f32, too, and
    what GPUs compute by tiles (``tile-matmuls``) has its own type.
    """

    products: bool = option("of products, too, outside of loops over tiles", False)

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            if reduces(generic) and len(generic.results) == 1 and self._takes(generic):
                combiner = _combiner(generic)
                if combiner is not None:
                    _widen(generic, combiner)

    def _takes(self, op: ir.Operation) -> bool:
        is_outside = not any(a.name in ("scf.for", "scf.forall") for a in ancestors(op))
        return not is_contraction(op) or (self.products and is_outside)


def _combiner(op: ir.Operation) -> ir.Operation | None:
    """What adds halves to the result, where that is all that the result is for."""
    combiner = sole_combiner(op, 0)
    if combiner is None or combiner.name not in COMBINERS:
        return None
    return combiner if isinstance(combiner.results[0].type, ir.F16Type | ir.BF16Type) else None


def _widen(op: ir.Operation, combiner: ir.Operation) -> None:
    *inputs, init = op.operands
    wide, is_product = ir.F32Type.get(), is_contraction(op)
    with ir.InsertionPoint(op), op.location:
        number = filled_with(init)
        if number is None:
            start = build.convert_elements(init, wide)
        else:
            start = build.fill(build.constant(wide, number.value), build.empty(build.mixed_sizes(init), wide))
        made = with_operands(op, inputs, [start], indexing_maps(op), op.attributes["iterator_types"])
        op.results[0].replace_all_uses_with(build.convert_elements(made.result, element_of(init.type)))
    op.erase()
    list(made.regions[0].blocks[0].arguments)[-1].set_type(wide)
    parts = list(combiner.operands)
    with ir.InsertionPoint(combiner), combiner.location:
        terms = [_factored(v, wide) if is_product else build.convert(v, wide) for v in parts]
        total = ir.Operation.create(combiner.name, [wide], terms).result
    combiner.results[0].replace_all_uses_with(total)
    combiner.erase()
    for part in parts:
        erase_if_unused(defining_op(part))


def _factored(value: ir.Value, wide: ir.Type) -> ir.Value:
    """What is added up in the wider type, a product of factors in that."""
    op = defining_op(value)
    if op is None or op.name != "arith.mulf":
        return build.convert(value, wide)
    return arith.mulf(*(build.convert(v, wide) for v in op.operands))
