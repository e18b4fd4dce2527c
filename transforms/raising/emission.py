"""From an expression to one ``linalg.generic`` over given variables.

What does not vary along both of two given sets of variables (the queries' and the keys') is computed by an op of its
own before it, so that it is not computed again for every element of the big pair; plain arithmetic on indices is not
worth that.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import arith, ir, linalg
from ..extents import size_value
from ..linear import DYNAMIC
from ..reshapes import VIEWS, drop_units, reshape
from ..rewriting import defining_op
from ..slices import Size, extract
from .expressions import OF_BITS, REAL, ROUND, Expr
from .indices import Index, Var, mixed_radix
from .loops import extents
from .tracing import Tracer


class Unreadable(Exception):
    """No tensor can be read for an element: the message says which."""


@dataclass(frozen=True)
class Access:
    """How an element is read: `tensor`, of which dimension d is counted through by the variables `dims[d]`.

    Where `steps` has (offset, step) for a dimension, they count through every step-th of its elements, from offset on.
    """

    tensor: ir.Value
    dims: tuple[tuple[Var, ...], ...]
    steps: tuple[tuple[int, int] | None, ...] = ()

    @property
    def vars(self) -> tuple[Var, ...]:
        return tuple(v for group in self.dims for v in group)

    @property
    def plain(self) -> bool:
        return all(len(group) == 1 for group in self.dims) and not any(self.steps)


def access(element: Expr, parts: Container[ir.Value] = ()) -> Access | None:
    """How to read that element, if each variable counts through (a part of) one dimension; only through the first
    elements of the dimensions of `parts`."""
    value, indices = element.payload
    dims: list[tuple[Var, ...]] = []
    steps: list[tuple[int, int] | None] = []
    for index, size in zip(indices, extents(value), strict=True):
        steps.append(None)
        if not index.terms:
            if size is None or not 0 <= index.constant < size:
                return None
            if size > 1:
                steps[-1] = (index.constant, 1)
            dims.append(())
            continue
        single = index.single
        if single is not None and None in (single.extent, size):
            dims.append((single,))  # where one of them is dynamic, the ops between say that they are equal
            continue
        if single is not None and value in parts and single.extent <= size:
            dims.append((single,))
            continue
        group = mixed_radix(index, size)
        if group is None or (len(group) == 1 and group[0].extent != size):
            group, steps[-1] = _stepping(index, size)
            if group is None:
                return None
        dims.append(tuple(group))
    used = [v for group in dims for v in group]
    found = Access(value, tuple(dims), tuple(steps) if any(steps) else ())
    return found if len(set(used)) == len(used) else None


def _stepping(index: Index, size: int | None) -> tuple[list[Var] | None, tuple[int, int] | None]:
    """The variables that count through elements of a dimension that are equally far apart, and their (offset, step):
    2·h + 1 are the odd ones of heads of which two belong together."""
    step = min(c for _, c in index.terms)
    if size is None or step < 1 or index.constant < 0 or any(c % step or v.extent is None for v, c in index.terms):
        return None, None
    count = math.prod(v.extent or 1 for v, _ in index.terms)
    if index.constant + step * (count - 1) >= size:
        return None, None
    group = mixed_radix(Index(tuple((v, c // step) for v, c in index.terms)), count)
    return group, (index.constant, step)


def best_access(elements: Sequence[Expr], parts: Container[ir.Value] = ()) -> Access | None:
    """How to read the last of these equal elements that can be read: nothing that moves data is on the way to it then.

    Reshapes move nothing: an element further up behind reshapes alone is better if it can be read as it is.
    """
    best: Access | None = None
    for element in reversed(elements):
        found = access(element, parts)
        if best is not None:
            op = defining_op(element.payload[0])
            if op is None or op.name not in VIEWS:
                break
        if found is not None and (best is None or found.plain):
            best = found
        if best is not None and best.plain:
            break
    return best


def with_unit(found: Access, unit: Var) -> Access:
    """The same with `unit` as a dimension: one of size 1 that is not counted through, else a part of the first one."""
    last = max((d for d, group in enumerate(found.dims) if not group), default=0)
    group = (unit, *found.dims[last])
    return Access(found.tensor, (*found.dims[:last], group, *found.dims[last + 1 :]), found.steps)


class Emitter:
    """Emits tensors over variables at the current insertion point. `compute` is the float type to compute in."""

    def __init__(self, tracer: Tracer, compute: ir.Type):
        self.tracer, self.compute = tracer, compute
        self.sizes: dict[Var, tuple[ir.Value, int, int]] = {}  # of which tensor, which dimension, how many times less
        self._reshaped: dict[Access, ir.Value] = {}

    def know_sizes(self, found: Access) -> None:
        if found.tensor in self.tracer.parts:
            return
        for d, group in enumerate(found.dims):
            inner = math.prod(v.extent or 0 for v in group[1:])
            known = self.sizes.get(group[0]) if group else None
            if group and inner and (known is None or inner < known[2]):
                self.sizes[group[0]] = found.tensor, d, inner

    def size(self, var: Var) -> int | ir.Value:
        if var.extent is not None:
            return var.extent
        if var not in self.sizes:
            raise Unreadable("a dynamic dimension is split by a reshape, and no operand tells the size of a part")
        value, d, inner = self.sizes[var]
        size = size_value(value, d)
        return size if inner == 1 else arith.divui(size, build.index(inner))

    def empty(self, dims: Sequence[Var], element: ir.Type) -> ir.Value:
        return build.empty([self.size(v) for v in dims], element)

    def load(self, found: Access) -> tuple[ir.Value, tuple[Var, ...]]:
        """The tensor with one dimension per variable, and these; of `parts`, as much as the variables count through."""
        is_part = found.tensor in self.tracer.parts
        if (is_part or not found.plain) and found not in self._reshaped:
            value = _stepped(found)
            if is_part:
                pairs = zip(found.dims, value.type.shape, strict=True)
                sizes = [self.size(group[0]) if len(group) == 1 else whole for group, whole in pairs]
                value = _first(value, sizes)
            if any(len(group) > 1 for group in found.dims):
                value = reshape(value, [[self.size(v) for v in g] or [1] for g in found.dims], expand=True)
            flat = [v for group in found.dims for v in (group or (None,))]
            if None in flat:
                value = drop_units(value, [v is None for v in flat])
            self._reshaped[found] = value
        return self._reshaped.get(found, found.tensor), found.vars

    def element_access(self, element: Expr) -> Access:
        # Before a reshape it may have been read along a dimension of one element, which is none of an expression of it.
        equal = [e for e in self.tracer.aliases.get(element, [element]) if e.vars <= element.vars]
        found = best_access(equal, self.tracer.parts)
        if found is None:
            raise Unreadable(f"a reshape of '{_owner_name(element)}' cannot be taken apart")
        return found

    def hoisted(self, expr: Expr, queries: frozenset[Var], keys: frozenset[Var]) -> Expr:
        """`expr` with what does not vary along `queries` and along `keys` computed beforehand."""
        make = self.tracer.make

        def replace(node: Expr) -> Expr | None:
            if node.kind != "op" or (node.vars & queries and node.vars & keys) or not node.vars:
                return None
            if not _worth_storing(node):
                return None
            dims = sorted(node.vars, key=lambda v: v.serial)
            element = self.compute if node.type == REAL else node.type
            stored = self.elementwise(node, dims, element)
            return make.element(stored, tuple(Index.of(v) for v in dims))

        return make.rewritten(expr, replace)

    def elementwise(self, expr: Expr, dims: Sequence[Var], element: ir.Type) -> ir.Value:
        """A tensor over `dims` of elements `expr`, of type `element`."""
        leaves = sorted({n for n in expr.nodes() if n.kind == "element"}, key=lambda n: n.serial)
        accesses = [self.element_access(leaf) for leaf in leaves]
        for found in accesses:
            self.know_sizes(found)
        loaded = [self.load(found) for found in accesses]
        maps = [build.projection(len(dims), [dims.index(v) for v in used]) for _, used in loaded]
        maps.append(build.projection(len(dims), range(len(dims))))

        def body(*scalars: ir.Value) -> ir.Value:
            known = dict(zip(leaves, scalars, strict=False))
            return self._convert(Region(self.compute, known, list(dims)).value(expr), element)

        (result,) = build.generic(
            [value for value, _ in loaded],
            [self.empty(dims, element)],
            maps,
            [build.PARALLEL] * len(dims),
            body,
        )
        return result

    @staticmethod
    def _convert(value: ir.Value, element: ir.Type) -> ir.Value:
        return build.convert(value, element) if build.is_float(value.type) else value


class Region:
    """Emits an expression as scalar ops."""

    def __init__(self, compute: ir.Type, known: dict[Expr, ir.Value], dims: list[Var]):
        self.compute, self.loaded, self.dims = compute, known, dims
        self.known: dict[Expr, ir.Value] = {}

    def value(self, expr: Expr) -> ir.Value:
        if expr not in self.known:
            self.known[expr] = self._value(expr)
        return self.known[expr]

    def _value(self, expr: Expr) -> ir.Value:
        kind = self.compute if expr.type == REAL else expr.type
        if expr.kind == "const":
            return build.constant(kind, expr.payload)
        if expr.kind == "element":
            loaded = self.loaded[expr]
            return build.convert(loaded, kind) if expr.type == REAL else loaded
        if expr.kind == "scalar":
            return build.convert(expr.payload, kind) if expr.type == REAL else expr.payload
        if expr.kind == "index":
            return self._index(expr.payload)
        if expr.name == ROUND:
            (rounded,) = expr.args
            return build.convert(build.convert(self.value(rounded), expr.attribute("type").value), kind)
        if expr.name == OF_BITS:
            (bits,) = expr.args
            return build.convert(arith.bitcast(expr.attribute("type").value, self.value(bits)), kind)
        op = ir.Operation.create(
            expr.name,
            results=[kind],
            operands=[self.value(a) for a in expr.args],
            attributes=dict(expr.payload[1]),
        )
        return op.result

    def _index(self, index: Index) -> ir.Value:
        total: ir.Value | None = build.index(index.constant) if index.constant or not index.terms else None
        for var, coefficient in index.terms:
            term = linalg.IndexOp(self.dims.index(var)).result
            if coefficient != 1:
                term = arith.muli(term, build.index(coefficient))
            total = term if total is None else arith.addi(total, term)
        assert total is not None
        return total


def _first(value: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """The first elements of a tensor, as many as `sizes` in each dimension."""
    shape = [size if isinstance(size, int) else DYNAMIC for size in sizes]
    rank = len(shape)
    return extract(ir.RankedTensorType.get(shape, value.type.element_type), value, [0] * rank, sizes, [1] * rank)


def _worth_storing(node: Expr) -> bool:
    """Whether it costs more than to compute it from indices again: it reads tensors, or calls into math."""
    inside = list(node.nodes())
    return any(n.kind == "element" for n in inside) or any(
        n.name.startswith("math.") or n.name in ("arith.divf", "arith.divsi", "arith.remsi") for n in inside
    )


def _owner_name(element: Expr) -> str:
    owner = element.payload[0].owner
    return "a function argument" if isinstance(owner, ir.Block) else owner.name


def _stepped(found: Access) -> ir.Value:
    """The tensor, or those of its elements that `steps` say; every n-th ones are one of n columns of the dimension, so
    that the slice has no strides."""
    value = found.tensor
    if not any(found.steps):
        return value
    groups: list[list[Size]] = []
    offsets: list[Size] = []
    parts: list[Size] = []
    strides: list[Size] = []
    for size, group, taken in zip(build.mixed_sizes(value), found.dims, found.steps, strict=True):
        offset, step = taken or (0, 1)
        count = size if taken is None else math.prod(v.extent or 1 for v in group)
        if step > 1 and isinstance(count, int) and count * step == size:
            groups.append([count, step])
            offsets += [0, offset]
            parts += [count, 1]
            strides += [1, 1]
        else:
            groups.append([size])
            offsets.append(offset)
            parts.append(count)
            strides.append(step)
    if len(parts) > len(groups):
        value = reshape(value, groups, expand=True)
    shape = [count if isinstance(count, int) else DYNAMIC for count in parts]
    value = extract(ir.RankedTensorType.get(shape, value.type.element_type), value, offsets, parts, strides)
    columns = [[False, True] if len(group) > 1 else [False] for group in groups]
    return drop_units(value, [c for group in columns for c in group]) if len(parts) > len(groups) else value
