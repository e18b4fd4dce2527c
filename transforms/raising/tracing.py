"""From an element of a tensor to the expression that computes it, backwards through linalg and reshapes.

Through layout (transpose, expand_shape, collapse_shape, broadcast, cast) an element of the result *is* an element of
the source; through an element-wise op it is an expression of elements. Where neither can be seen (function arguments,
reductions, gathers, reshapes that do not come apart) the element stands for itself. Every tensor on the way may be
read in place of the last one: `Tracer.aliases` keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...dialects.build import constant_value, is_float8
from ...dialects.mlir import ir
from ...dialects.tiling.structured import (
    FLOAT_CASTS,
    all_parallel,
    indexing_maps,
    iterator_types,
    moved_operand,
    reduces,
)
from ...dialects.tiling.tensor_ops import reassociation
from ..extents import static_extents
from ..reshapes import RESHAPES
from ..rewriting import defining_op, terminator
from .bodies import Body, combiner
from .candidates import Followers
from .expressions import REAL, Expr, Expressions, scalar_type
from .given import Given
from .indices import Index, Opaque, SplitNeeded, Var, delinearize, linearize
from .loops import extents, index_of, loops_at
from .padding import is_padding, unpadded
from .pieces import chosen_element, concatenated_element, inserted_element, sliced_element

MAX_DEPTH = 200  # of element-wise ops in a row; beyond it a tensor is read, not looked into
MOST_COMPUTED = 64  # ops on integers for an element that several ops read; the hash of a dropout's mask has some 30
MOVES = ("linalg.transpose", "linalg.broadcast", "linalg.generic")  # that one, where it yields an operand


@dataclass(frozen=True)
class Reduction:
    """An element that reduces: `kind` is sum, max, all, any or "" for anything else; `loops` are what it runs over."""

    tracer: Tracer
    op: ir.Operation
    kind: str
    loops: tuple[int, ...]
    outer: Mapping[int, Index]
    yielded: ir.Value | None
    init: Expr

    def extent(self, loop: int) -> int | None:
        return static_extents(self.op)[loop]

    def body(self, indices: Sequence[Index]) -> Expr:
        """What is reduced, at these indices of `loops`; its elements are not looked into."""
        bound = {**self.outer, **dict(zip(self.loops, indices, strict=True))}
        loops = [bound[d] for d in range(len(bound))]
        if not len(self.op.regions):  # linalg_ext.batch_matmul
            return self.tracer.make.mul(*(self.tracer.operand(self.op, i, loops) for i in (0, 1)))
        assert self.yielded is not None
        return Body(self.tracer, self.op, loops).value(self.yielded)


class Tracer:
    """Makes expressions of elements; see the module. `splittable` are the variables that may be split; tensors that are
    `given` are there anyway, and not asked for what they are computed from; `followers`, where they are known, follow
    from exponentials."""

    def __init__(self, given: Given | None = None, followers: Followers | None = None) -> None:
        self.make = Expressions()
        self.given = given or Given()
        self.followers = followers
        self.may_split(frozenset())
        self.aliases: dict[Expr, list[Expr]] = {}
        self.parts: set[ir.Value] = set()  # of which gathers may read a part, from the first element on
        self.closer: set[Expr] = set()  # constants that are results of `brought_closer`
        self._expanded: dict[Expr, Expr] = {}

    def may_split(self, variables: frozenset[Var]) -> None:
        """From here on these may be split; `unsplit` are others that reshapes ask for."""
        self.splittable, self.unsplit = variables, set[Var]()

    def reads_given(self, expr: Expr) -> bool:
        return any(n.kind == "element" and n.payload[0] in self.given for n in expr.nodes())

    def has_no_softmax(self, expr: Expr) -> bool:
        """Whether it takes no look at what an element is made of, in a model's last layers of all that is before, to
        see that there is no softmax."""
        return self.followers is not None and expr.kind == "element" and not self.followers.may_be(expr.payload[0])

    # One step.

    def source(self, element: Expr) -> Expr | None:
        """The element that this one is, on the other side of one layout op; None if no layout op makes it."""
        tensor, indices = element.payload
        op = defining_op(tensor)
        if op is None or tensor in self.parts:
            return None
        try:
            moved = self._moved(op, indices)
        except Opaque:
            return None
        except SplitNeeded as split:
            if split.var in self.splittable:
                raise
            self.unsplit.add(split.var)
            return None
        if moved is None:
            return None
        known = self.aliases.get(element, [element])
        self.aliases.setdefault(moved, [*known, moved])
        return moved

    def origin(self, element: Expr) -> Expr:
        """The element that this one is, on the other side of all layout ops."""
        while (source := self.source(element)) is not None:
            element = source
        return element

    def step(self, element: Expr) -> Expr | None:
        """The expression that one element-wise op computes there, its elements not looked into; None if none does."""
        tensor, indices = element.payload
        op = defining_op(tensor)
        if op is None or tensor in self.given:
            return None
        if op.name == "arith.constant":
            return self._constant(op, indices, element.type)
        if op.name == "linalg.fill":
            return self.captured(op.operands[0])
        if tensor in self.parts:  # what made it may have other loops
            return None
        if op.name == "tensor.insert_slice":
            return inserted_element(self, op, indices)
        if op.name == "tensor.concat":
            return chosen_element(self, op, indices)
        if op.name == "tensor.pad":
            return self.captured(terminator(op.regions[0].blocks[0]).operands[0]) if is_padding(op, indices) else None
        if not all_parallel(op) or not len(op.regions):
            return None
        number = ir.OpResult(tensor).result_number
        loops = loops_at(op, number, indices)
        if loops is None:
            return None
        yielded = terminator(op.regions[0].blocks[0]).operands[number]
        try:
            return Body(self, op, [loops[d] for d in range(len(loops))]).value(yielded)
        except Opaque:
            return None

    def reduction(self, element: Expr) -> Reduction | None:
        """The reduction that computes this element, if one does."""
        tensor, indices = element.payload
        op = defining_op(tensor)
        if op is None or not reduces(op):
            return None
        number = ir.OpResult(tensor).result_number
        outer = loops_at(op, number, indices)
        if outer is None:
            return None
        loops = tuple(d for d, kind in enumerate(iterator_types(op)) if kind == "reduction" and d not in outer)
        outer_or_zero = [outer.get(d, Index()) for d in range(len(iterator_types(op)))]
        init = self.operand(op, len(op.operands) - len(op.results) + number, outer_or_zero)
        if op.name == "linalg_ext.batch_matmul":
            return Reduction(self, op, "sum", loops, outer, None, init)
        if not len(op.regions):
            return None
        kind, yielded = combiner(op, number)
        return Reduction(self, op, kind, loops, outer, yielded, init)

    def operand(self, op: ir.Operation, number: int, loops: Sequence[Index]) -> Expr:
        """The element of an operand that a structured op reads in an iteration."""
        value = op.operands[number]
        if not isinstance(value.type, ir.RankedTensorType):
            return self.captured(value)
        return self.make.element(value, tuple(index_of(e, loops) for e in indexing_maps(op)[number].results))

    def captured(self, value: ir.Value) -> Expr:
        """A scalar from outside of all loops."""
        number = constant_value(value)
        if number is not None:
            return self.make.const(number, scalar_type(value.type))
        op = defining_op(value)
        if op is not None and op.name in FLOAT_CASTS and not is_float8(value.type):
            return self.captured(op.operands[0])
        return self.make.scalar(value)

    # All steps.

    def expand(self, expr: Expr, depth: int = 0) -> Expr:
        """`expr` with every element looked into as far as element-wise ops and layout go."""
        if expr.kind == "element":
            found = self._expanded.get(expr)
            if found is None:
                origin = self.origin(expr)
                stepped = self.step(origin) if depth < MAX_DEPTH else None
                found = origin if stepped is None else self.expand(stepped, depth + 1)
                if found is not origin and _is_kept(origin, found):
                    found = origin
                self._expanded[expr] = found
            return found
        if not expr.args or not any(n.kind == "element" for n in expr.nodes()):
            return expr
        return self.make.rewritten(expr, lambda n: self.expand(n, depth + 1) if n.kind == "element" else None)

    # The ops.

    def _moved(self, op: ir.Operation, indices: tuple[Index, ...]) -> Expr | None:
        if op.name in RESHAPES:
            source = op.operands[0]
            expanding = op.name == "tensor.expand_shape"
            wide = extents(op.results[0] if expanding else source)
            if not expanding and not indices:  # of all dimensions, which no group names, one element is left
                return self.make.element(source, (Index(),) * len(wide))
            narrow: list[Index] = []
            for position, dims in enumerate(reassociation(op)):
                sizes = [wide[d] for d in dims]
                if expanding:
                    narrow.append(linearize([indices[d] for d in dims], sizes))
                else:
                    narrow += delinearize(indices[position], sizes)
            return self.make.element(source, tuple(narrow))
        if op.name == "tensor.cast" and isinstance(op.operands[0].type, ir.RankedTensorType):
            return self.make.element(op.operands[0], indices)
        if op.name == "tensor.extract_slice":
            return sliced_element(self.make, op, indices)
        if op.name == "tensor.concat":
            return concatenated_element(self.make, op, indices)
        if op.name == "tensor.pad":
            moved = unpadded(op, indices)
            return None if moved is None else self.make.element(op.operands[0], moved)
        if op.name in MOVES and len(op.results) == 1 and not reduces(op):
            loops, number = loops_at(op, 0, indices), moved_operand(op)
            if loops is not None and number is not None and isinstance(op.operands[number].type, ir.RankedTensorType):
                return self.operand(op, number, [loops[d] for d in range(len(loops))])
        return None

    def _constant(self, op: ir.Operation, indices: tuple[Index, ...], type_) -> Expr | None:
        value = op.attributes["value"]
        if not isinstance(value, ir.DenseElementsAttr):
            return None
        if value.is_splat:
            return self.make.const(value.get_splat_value().value, type_)
        if not isinstance(value, ir.DenseIntElementsAttr) or str(type_) == "i1":
            return None
        # 0, 1, 2, … along its one dimension that is not 1 is an index.
        numbers = np.array(value)
        wide = [d for d, size in enumerate(numbers.shape) if size != 1]
        if len(wide) != 1 or not np.array_equal(numbers.ravel(), np.arange(numbers.size)):
            return None
        return self.make.op("arith.index_cast", (self.make.index(indices[wide[0]]),), type_)


def _is_kept(element: Expr, computed: Expr) -> bool:
    """Whether a tensor is better computed once, and read from memory, than in each of several loops: floats or a mask
    that several ops read and hundreds of instructions make, as the mask of a dropout by JAX's random numbers is, which
    forward and backward need.
    """
    if element.type != REAL and str(element.type) != "i1":
        return False  # within a hash
    if len({use.owner.operation for use in element.payload[0].uses}) < 2:
        return False
    return sum(n.kind == "op" and isinstance(n.type, ir.IntegerType) for n in computed.nodes()) > MOST_COMPUTED
