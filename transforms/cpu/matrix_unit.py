"""Which contractions suit the instructions that multiply matrices of narrow types (`host.matrix_unit`).

The option `matrix` of the passes that ask forces some. What is no sum of products of two inputs, or has too few rows to
fill tiles, stays with the vectors.
"""

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import ir
from ...dialects.tiling.structured import FLOAT_CASTS, dim_position, indexing_maps, iterator_types
from ..host import UNITS
from ..rewriting import defining_op, ops_in, ops_of, through

MATRIX_OPTION = f"instructions for products of narrow types: {', '.join(UNITS)}; empty = what the host has"
ROWS, PAIRS, DEPTH = 16, 16, 32  # of a tile: rows or columns, pairs of a column's elements, elements of a row
MIN_ROWS = 8  # with fewer, tiles stay mostly empty


def has_tiles(unit: str) -> bool:
    """True if the unit's operands and sums are tiles, which have a layout of their own; dot products are of vectors."""
    return unit not in ("dot", "none")


@dataclass(frozen=True)
class Product:
    """C[…, m, n] += A[…, m, k]·B[…, k, n]: which loops are rows, columns and sums, by the inputs that have them."""

    only_first: tuple[int, ...]  # parallel loops of the first input, not of the second one
    only_second: tuple[int, ...]
    summed: tuple[int, ...]


def product_of(generic: ir.Operation) -> Product | None:
    """How the op, on tensors or buffers, is a sum of products of two inputs; None if it is none."""
    if generic.name != "linalg.generic" or len(generic.operands) != 3:
        return None
    if not all(isinstance(v.type, ir.ShapedType) for v in generic.operands) or not _multiplies(generic):
        return None
    loops = []
    for m in indexing_maps(generic):
        results = [e.maybe_downcast() for e in m.results]
        dims = [d for e in results if (d := dim_position(e)) is not None]
        constants = sum(isinstance(e, ir.AffineConstantExpr) for e in results)
        if len(set(dims)) != len(dims) or len(dims) + constants != len(m.results):
            return None
        loops.append(set(dims))
    parallel = {d for d, kind in enumerate(iterator_types(generic)) if kind == "parallel"}
    summed = set(range(indexing_maps(generic)[0].n_dims)) - parallel
    if loops[2] != parallel or not summed or not all(summed <= found for found in loops[:2]):
        return None
    first, second = (sorted(loops[i] & parallel - loops[1 - i]) for i in (0, 1))
    return Product(tuple(first), tuple(second), tuple(sorted(summed))) if first and second else None


def is_native(unit: str, element: ir.Type) -> bool:
    """True if the unit multiplies numbers of this type as they are, or as the bf16 that they are, too."""
    return build.is_in_bf16(element) or (unit == "amx-fp16" and isinstance(element, ir.F16Type))


def multiplies(unit: str, first: ir.Type, second: ir.Type) -> bool:
    """True if the unit multiplies numbers of these types, as they are or in parts."""
    if unit == "none":
        return False
    if (first == second and is_native(unit, first)) or (build.is_in_bf16(first) and build.is_in_bf16(second)):
        return True
    # In parts; P of P·V, which is not rounded before, is f32. By dot products that would take longer than in f32.
    return (
        unit != "dot"
        and all(isinstance(e, ir.F16Type | ir.F32Type) for e in (first, second))
        and ir.F16Type.get() in (first, second)
    )


def suits(generic: ir.Operation, unit: str) -> bool:
    """True if the op, on tensors or buffers, is to be computed by the matrix unit."""
    elements = [build.element_of(v.type) for v in generic.operands]
    if len(elements) != 3 or not multiplies(unit, *elements[:2]) or not build.is_float(elements[2]):
        return False
    product = product_of(generic)
    if product is None:
        return False
    least = MIN_ROWS if has_tiles(unit) else 1
    return all(_extent(generic, loops) >= least for loops in (product.only_first, product.only_second))


def _extent(generic: ir.Operation, loops: tuple[int, ...]) -> float:
    """The size of the largest of the loops; what is dynamic is taken to be large."""
    sizes = []
    for value, m in zip(generic.operands, indexing_maps(generic), strict=True):
        for d, e in enumerate(m.results):
            if dim_position(e) in loops:
                sizes.append(float("inf") if value.type.is_dynamic_dim(d) else value.type.get_dim_size(d))
    return max(sizes)


def _multiplies(generic: ir.Operation) -> bool:
    """True if the body is out + a·b; conversions between floats may stand anywhere: sums are f32."""
    block = generic.regions[0].blocks[0]
    *body, end = ops_of(block)
    a, b, out = block.arguments
    if not {o.name for o in body} <= {*FLOAT_CASTS, "arith.mulf", "arith.addf"}:
        return False
    added = defining_op(through(end.operands[0], *FLOAT_CASTS))
    if added is None or added.name != "arith.addf":
        return False
    terms = [through(v, *FLOAT_CASTS) for v in added.operands]
    products = [defining_op(v) for v in terms if v != out]
    if len(products) != 1 or products[0] is None or products[0].name != "arith.mulf":
        return False
    factors = [through(v, *FLOAT_CASTS) for v in products[0].operands]
    return factors in ([a, b], [b, a])


def is_for_matrix_unit(loop: ir.Operation, unit: str) -> bool:
    """True if a contraction in the loop is computed by the matrix unit: its layout is that of tiles then."""
    return any(suits(generic, unit) for generic in ops_in(loop, "linalg.generic"))
