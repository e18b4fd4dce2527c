"""Which dimensions of a function's arguments must be equal.

A graph with dynamic sizes says nothing of them in its types, but its ops do: the k of a matmul is a dimension of both
its operands. Dimensions are unified through the ops, so that arrays can be checked before a kernel reads past their
ends, and sizes can be made up that fit together.
"""

from collections.abc import Iterable
from typing import Any

from ..dialects.build import constant_value
from ..dialects.mlir import ir
from ..dialects.tiling.structured import indexing_maps, is_structured
from ..dialects.tiling.tensor_ops import reassociation
from ..transforms.formulas import leaves
from ..transforms.index_formulas import dimension_of, formula
from ..transforms.rewriting import terminator
from ..transforms.slices import slice_parts
from .runtime.signature import Bound, Dimensions

DYNAMIC = ir.ShapedType.get_dynamic_size()

ELEMENTWISE = ("arith.", "math.")  # dialects whose ops take tensors of one shape, and scalars

# A dimension of a tensor, or the value of an `index`.
Node = tuple[ir.Value, int]


def argument_dimensions(function: ir.OpView) -> Dimensions:
    """The groups of equal dimensions of the arguments of a ``func.func``."""
    classes = _Classes()
    with function.operation.context:
        _unify_block(function.regions[0].blocks[0], classes)
    groups: dict[Node, list[tuple[int, int | None]]] = {}
    for i, argument in enumerate(function.regions[0].blocks[0].arguments):
        if (argument, 0) in classes.parents and isinstance(argument.type, ir.IndexType):
            groups.setdefault(classes.find((argument, 0)), []).append((i, None))
        for d in range(_rank(argument)):
            groups.setdefault(classes.find((argument, d)), []).append((i, d))
    return Dimensions(list(groups.values()), [classes.sizes.get(root) for root in groups])


def slice_bounds(function: ir.OpView) -> tuple[Bound, ...]:
    """What must hold of the sizes and numbers that a ``func.func`` is called with, lest a slice leave its tensor."""
    found = []
    for view in function.regions[0].blocks[0].operations:
        op = view.operation
        if op.name == "tensor.extract_slice":
            found += _bounds(op, op.operands[0], "reads")
        elif op.name == "tensor.insert_slice":
            found += _bounds(op, op.operands[1], "writes")
    return tuple(found)


def _bounds(op: ir.Operation, whole_tensor: ir.Value, verb: str) -> list[Bound]:
    number = ir.BlockArgument(whole_tensor).arg_number if isinstance(whole_tensor.owner, ir.Block) else None
    bounds = []
    for d, (offset, size, stride) in enumerate(zip(*slice_parts(op), strict=True)):
        start, count, whole = formula(offset), formula(size), dimension_of(whole_tensor, d)
        end = ["add", start, count] if stride == 1 else ["unknown"]
        known = [leaf for one in (start, count, whole) for leaf in leaves(one)]
        if known and end[0] != "unknown" and all(leaf[0] in ("dim", "argument") for leaf in known):
            bounds.append(Bound(number, d, start, end, whole, verb))
    return bounds


class _Classes:
    """Union-find over nodes; a class knows its static size if one of its nodes has one."""

    def __init__(self) -> None:
        self.parents: dict[Node, Node] = {}
        self.sizes: dict[Node, int] = {}

    def find(self, node: Node) -> Node:
        if node not in self.parents:
            self.parents[node] = node
            size = _static_size(node)
            if size is not None:
                self.sizes[node] = size
        while self.parents[node] != node:
            self.parents[node] = self.parents[self.parents[node]]
            node = self.parents[node]
        return node

    def unify(self, nodes: Iterable[Node]) -> None:
        roots = [self.find(node) for node in nodes]
        for root in roots[1:]:
            root, first = self.find(root), self.find(roots[0])
            if root != first:
                self.parents[root] = first
                if root in self.sizes:
                    self.sizes.setdefault(first, self.sizes[root])

    def unify_shapes(self, values: Iterable[ir.Value]) -> None:
        values = list(values)
        for d in range(min(map(_rank, values), default=0)):
            self.unify((value, d) for value in values)


def _rank(value: ir.Value) -> int:
    return value.type.rank if isinstance(value.type, ir.RankedTensorType) else 0


def _static_size(node: Node) -> int | None:
    value, d = node
    if isinstance(value.type, ir.RankedTensorType):
        return None if value.type.shape[d] == DYNAMIC else value.type.shape[d]
    return constant_value(value)


def _unify_block(block: ir.Block, classes: _Classes) -> None:
    for view in block.operations:
        op = view.operation
        if is_structured(op):
            _unify_structured(op, classes)
            continue
        rule = _same_shapes if op.name.startswith(ELEMENTWISE) else _RULES.get(op.name)
        if rule is not None:
            rule(op, classes)
        for region in op.regions:
            for inner in region.blocks:
                _unify_block(inner, classes)


def _unify_structured(op: ir.Operation, classes: _Classes) -> None:
    loops: dict[int, list[Node]] = {}
    for operand, map in zip(op.operands, indexing_maps(op), strict=True):
        for d, expr in enumerate(map.results):
            if isinstance(expr, ir.AffineDimExpr):
                loops.setdefault(expr.position, []).append((operand, d))
    for nodes in loops.values():
        classes.unify(nodes)
    inits = list(op.operands)[len(op.operands) - len(op.results) :]
    for init, result in zip(inits, op.results, strict=True):
        classes.unify_shapes([init, result])


def _same_shapes(op: ir.Operation, classes: _Classes) -> None:
    classes.unify_shapes(v for v in (*op.operands, *op.results) if isinstance(v.type, ir.RankedTensorType))


def _sizes(value: ir.Value, static: Iterable[int], dynamic: Iterable[ir.Value], classes: _Classes) -> None:
    """The dimensions of `value` whose static size is unknown are the `dynamic` values, in order."""
    if _rank(value) != len(list(static)):
        return
    remaining = iter(dynamic)
    for d, size in enumerate(static):
        if size == DYNAMIC:
            classes.unify([(value, d), (next(remaining), 0)])


def _empty(op: ir.Operation, classes: _Classes) -> None:
    _sizes(op.results[0], op.results[0].type.shape, op.operands, classes)


def _dim(op: ir.Operation, classes: _Classes) -> None:
    d = constant_value(op.operands[1])
    if d is not None and 0 <= d < _rank(op.operands[0]):
        classes.unify([(op.results[0], 0), (op.operands[0], d)])


def _extract(op: ir.Operation, classes: _Classes) -> None:
    _sizes(op.results[0], op.opview.static_sizes, op.opview.sizes, classes)


def _insert(op: ir.Operation, classes: _Classes) -> None:
    _sizes(op.operands[0], op.opview.static_sizes, op.opview.sizes, classes)
    if op.results:
        classes.unify_shapes([op.operands[1], op.results[0]])


def _reassociate(op: ir.Operation, classes: _Classes) -> None:
    """Dimensions that stay as they are; an expansion's other sizes are given by its operands."""
    folded, unfolded = op.operands[0], op.results[0]
    if op.name == "tensor.collapse_shape":
        folded, unfolded = unfolded, folded
    else:
        _sizes(unfolded, list(op.attributes["static_output_shape"]), list(op.operands)[1:], classes)
    for d, group in enumerate(reassociation(op)):
        if len(group) == 1:
            classes.unify([(folded, d), (unfolded, group[0])])


def _loop(op: ir.Operation, classes: _Classes) -> None:
    """Carried values: inits, block arguments, results and what is yielded."""
    count = len(op.results)
    inits = list(op.operands)[len(op.operands) - count :]
    block = op.regions[0].blocks[0]
    arguments = list(block.arguments)[len(block.arguments) - count :]
    yielded = list(terminator(block).operands)
    for i in range(count):
        parts = [inits[i], arguments[i], op.results[i]]
        classes.unify_shapes(parts + ([yielded[i]] if len(yielded) == count else []))


_RULES: dict[str, Any] = {
    "linalg.softmax": _same_shapes,
    "tensor.cast": _same_shapes,
    "tensor.empty": _empty,
    "tensor.dim": _dim,
    "tensor.extract_slice": _extract,
    "tensor.insert_slice": _insert,
    "tensor.parallel_insert_slice": _insert,
    "tensor.expand_shape": _reassociate,
    "tensor.collapse_shape": _reassociate,
    "scf.for": _loop,
    "scf.forall": _loop,
}
