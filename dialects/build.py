"""Small builders for linalg on tensors, used by decompositions and rewrites.

All of them insert at the current insertion point and take the current location::

    with ir.InsertionPoint(op), op.location:
        tile = build.empty(build.mixed_sizes(op.input), f32)
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from .diagnostic import NOWHERE, DiagnosedError, Diagnostic, place_of
from .float8 import float8
from .mlir import arith, ir, linalg, memref, tensor

PARALLEL = "parallel"
REDUCTION = "reduction"


# Of the block of `sharing` that is being run, the op that its constants stand before, and what is made once.
_shared: ContextVar[tuple[ir.Operation, dict[Any, ir.Value]] | None] = ContextVar("_shared", default=None)


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Within the block, which builds at the current insertion point, constants that are equal are one op, before all
    others, and what `once` makes of a value is one op of each block: some passes would make hundreds, which then have
    to be found equal."""
    token = _shared.set((index(0).owner, {}))
    try:
        yield
    finally:
        _shared.reset(token)


def once(name: str, kind: ir.Type, operand: ir.Value) -> ir.Value:
    """What a pure op makes of a value; within `sharing`, which goes from the start of a block to its end, the one that
    the block has already. It and constants are made by names: upstream's builders take twice as long."""
    shared = _shared.get()
    known = {} if shared is None else shared[1]
    key = name, kind, operand, ir.InsertionPoint.current.block
    if key not in known:
        known[key] = ir.Operation.create(name, [kind], [operand]).result
    return known[key]


def _constant(kind: ir.Type, value: Any, attribute: Callable[[], ir.Attribute]) -> ir.Value:
    shared = _shared.get()
    if shared is None:
        return ir.Operation.create("arith.constant", [kind], attributes={"value": attribute()}).result
    first, known = shared
    if (kind, value) not in known:
        attributes, place = {"value": attribute()}, ir.InsertionPoint(first)
        known[kind, value] = ir.Operation.create("arith.constant", [kind], attributes=attributes, ip=place).result
    return known[kind, value]


def index(value: int) -> ir.Value:
    kind = ir.IndexType.get()
    return _constant(kind, value, lambda: ir.IntegerAttr.get(kind, _of_64_bits(value)))


def i64_attribute(value: int) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _of_64_bits(value))


def _of_64_bits(value: int) -> int:
    """`value`, which is computed from numbers of the graph: an error of the user's where these are too large."""
    if not -(2**63) <= value < 2**63:
        message = f"computes with {value}, which has more than 64 bits: use smaller sizes, strides and constants"
        raise DiagnosedError([Diagnostic("error", *(place_of(ir.Location.current) or NOWHERE), message)])
    return value


def as_index(size: int | ir.Value) -> ir.Value:
    """A size or an offset, that may be a number, as a value."""
    return index(size) if isinstance(size, int) else size


def constant(kind: ir.Type, value: float) -> ir.Value:
    """A constant of an integer, index or float type, or a vector that has it in every lane."""

    def attribute() -> ir.Attribute:
        element = element_of(kind)
        one = ir.FloatAttr.get(element, value) if is_float(element) else ir.IntegerAttr.get(element, int(value))
        return ir.DenseElementsAttr.get_splat(kind, one) if isinstance(kind, ir.VectorType) else one

    return _constant(kind, repr(value), attribute)


def element_of(kind: ir.Type) -> ir.Type:
    """The type of the elements of a tensor, buffer or vector; of a scalar, its own."""
    return kind.element_type if isinstance(kind, ir.ShapedType) else kind


def like(kind: ir.Type, element: ir.Type) -> ir.Type:
    """`kind`, a scalar or a vector, of another element type."""
    if not isinstance(kind, ir.VectorType):
        return element
    return ir.VectorType.get(kind.shape, element, scalable=kind.scalable_dims)


def is_float(kind: ir.Type) -> bool:
    return isinstance(kind, ir.FloatType)


def is_narrow(kind: ir.Type) -> bool:
    """True for the floats that are stored but not computed with: f16, bf16, and those of 8 bits."""
    return isinstance(kind, ir.FloatType) and (kind.width == 16 or is_float8(kind))


def is_float8(kind: ir.Type) -> bool:
    return float8(kind) is not None


def is_in_bf16(kind: ir.Type) -> bool:
    """True if all numbers of this type are exactly numbers of bf16."""
    return isinstance(kind, ir.BF16Type) or is_float8(kind)


def compute_type(kind: ir.Type) -> ir.Type:
    """The type to compute in: f32 for narrow floats, else the type itself."""
    return ir.F32Type.get() if is_narrow(kind) else kind


def convert(value: ir.Value, kind: ir.Type) -> ir.Value:
    """A float scalar extended or truncated to `kind`."""
    if value.type == kind:
        return value
    wider = ir.FloatType(kind).width > ir.FloatType(value.type).width
    if not wider and ir.FloatType(kind).width == ir.FloatType(value.type).width:  # as between f16 and bf16
        return arith.truncf(kind, arith.extf(ir.F32Type.get(), value))
    return arith.extf(kind, value) if wider else arith.truncf(kind, value)


def mixed_size(value: ir.Value, d: int) -> int | ir.Value:
    """A size of a tensor or buffer: an int where it is static, tensor.dim or memref.dim where not."""
    if not value.type.is_dynamic_dim(d):
        return value.type.get_dim_size(d)
    return (memref if isinstance(value.type, ir.MemRefType) else tensor).dim(value, index(d))


def mixed_sizes(value: ir.Value) -> list[int | ir.Value]:
    return [mixed_size(value, d) for d in range(value.type.rank)]


def empty(sizes: Sequence[int | ir.Value], element: ir.Type) -> ir.Value:
    return tensor.empty(list(sizes), element)


def fill(value: ir.Value, init: ir.Value) -> ir.Value:
    return _named(linalg.FillOp([init.type], [value], [init]))


def broadcast(value: ir.Value, init: ir.Value, dimensions: Sequence[int]) -> ir.Value:
    """The value in a tensor that has `dimensions` besides its own."""
    return _named(linalg.BroadcastOp([init.type], value, init, dimensions))


def matmul(lhs: ir.Value, rhs: ir.Value, init: ir.Value) -> ir.Value:
    """linalg.matmul, or linalg.batch_matmul of tensors of rank 3, as the parser makes them: with their maps."""
    rank = init.type.rank
    *batch, m, n, k = range(rank + 1)
    maps = map_array([projection(rank + 1, (*batch, *dims)) for dims in ((m, k), (k, n), (m, n))])
    kind = linalg.BatchMatmulOp if batch else linalg.MatmulOp
    return _named(kind([init.type], [lhs, rhs], [init], indexing_maps=maps))


def _named(op: ir.OpView) -> ir.Value:
    """The result of a named op, which gets its region; upstream's builders take long to import (`mlir.py`)."""
    linalg.fill_builtin_region(op.operation)
    return op.operation.results[0]


def projection(n_dims: int, dims: Sequence[int]) -> ir.AffineMap:
    """(d0, …, dn) -> (the given dims)."""
    return ir.AffineMap.get(n_dims, 0, [ir.AffineExpr.get_dim(d) for d in dims])


def map_array(maps: Iterable[ir.AffineMap]) -> ir.ArrayAttr:
    """The attribute `indexing_maps`."""
    return ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])


def iterator_array(iterators: Iterable[str]) -> ir.ArrayAttr:
    """The attribute `iterator_types`."""
    return ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{i}>") for i in iterators])


def generic(
    ins: Sequence[ir.Value],
    outs: Sequence[ir.Value],
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    body: Callable[..., ir.Value | Sequence[ir.Value]],
) -> list[ir.Value]:
    """A linalg.generic; `body` gets a scalar per operand and returns a scalar, or a list of them, one per result."""
    results = [o.type for o in outs if isinstance(o.type, ir.RankedTensorType)]
    op = linalg.GenericOp(results, ins, outs, map_array(maps), iterator_array(iterators))
    operands = [*ins, *outs]
    block = op.regions[0].blocks.append(*[element_of(v.type) for v in operands])
    with ir.InsertionPoint(block):
        values = body(*block.arguments)
        linalg.YieldOp([values] if isinstance(values, ir.Value) else list(values))
    return list(op.results)


def convert_elements(value: ir.Value, element: ir.Type) -> ir.Value:
    """`value` itself, or an element-wise op that converts it."""
    if value.type.element_type == element:
        return value
    n = value.type.rank
    (result,) = generic(
        [value],
        [empty(mixed_sizes(value), element)],
        [projection(n, range(n))] * 2,
        [PARALLEL] * n,
        lambda v, _: convert(v, element),
    )
    return result


def zero_filled(value: ir.Value) -> bool:
    """True if `value` is a linalg.fill with zero."""
    fill_op = value.owner
    if not isinstance(fill_op, ir.Operation | ir.OpView) or fill_op.name != "linalg.fill":
        return False
    return constant_value(fill_op.operands[0]) == 0


def digits(number: ir.Value, sizes: Sequence[int | ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
    """A number that counts through dimensions of these sizes, row by row, as an index of each, and what is left of it
    beyond them."""
    found: list[ir.Value] = []
    for size in map(as_index, reversed(sizes)):
        found.insert(0, arith.remui(number, size))
        number = arith.divui(number, size)
    return number, found


def number_of(indices: Iterable[ir.Value], sizes: Sequence[int | ir.Value]) -> ir.Value:
    """The number of an element of dimensions of these sizes, which are counted through row by row; of its `digits`."""
    number = index(0)
    for at, size in zip(indices, sizes, strict=True):
        number = arith.addi(arith.muli(number, as_index(size)), at)
    return number


def constant_value(value: ir.Value) -> Any:
    """The number behind an arith.constant of a scalar; None if `value` is no such constant."""
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    return attribute.value if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr) else None
