"""What the dimensions of the tiles in a loop body mean: which of them are one and the same axis, and which role it has.

Dimensions that a structured op's loop runs along at once are one axis; so are those of a loop-carried tile from
iteration to iteration. Contractions give the roles: the loop m is "row", the loops n and k are "column" (the keys are n
of the first matmul and k of the second). Every other axis must have extent 1, and is "batch". Several loops m, such as
the heads of a group and its queries, are joined to one axis of rows.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...dialects.tile import dims_of, layout_of
from ...dialects.tiling.structured import dim_position, indexing_maps, is_structured, iterator_types, reduces
from ..attention import contraction_loops, is_matmul
from ..linear import DYNAMIC, upper_bound
from ..passes import PassError
from ..reshapes import RESHAPES, source_dims
from ..rewriting import defining_op, for_body, for_inits, is_inside, is_made_inside, ops_of
from ..slices import Size, mixed, slice_offsets, slice_parts, slice_sizes

ROW, COLUMN, BATCH = "row", "column", "batch"
MOST = 2**31 - 1  # elements of a tile along a dimension: kernels count in 32 bits
UNBOUNDED = "a dimension of a tile has no constant bound: tile it, or make the head sizes static"

Node = tuple[Hashable, ...]


class TwoRoles(PassError):
    """What cannot be computed at once, though each matmul of it can by itself."""


@dataclass
class Axis:
    """`size`: how many elements of a tile are valid along it, a number or a value; `extent`: at most so many. `joined`:
    the axes that are rows together, outermost first, of which all but the first are there as a whole."""

    role: str = BATCH
    size: ir.Value | int = 1
    extent: int = 1
    joined: Sequence["Axis"] = field(default=(), repr=False, compare=False)

    @property
    def parts(self) -> Sequence["Axis"]:
        return self.joined or (self,)

    @property
    def rows(self) -> int:
        """The extent of what it is joined to."""
        return math.prod(part.extent for part in self.parts)

    @property
    def inner(self) -> int:
        """How many elements of what it is joined to are one of its own."""
        place = next(i for i, part in enumerate(self.parts) if part is self)
        return math.prod(part.extent for part in self.parts[place + 1 :])


def rows_first(dims: Iterable[tuple[int, Axis]]) -> list[int]:
    """Those dimensions that are rows or columns, rows first; of joined ones the first."""
    kept: list[tuple[int, Axis]] = []
    for d, axis in dims:
        if axis.role != BATCH and not any(axis is part for _, other in kept for part in other.joined):
            kept.append((d, axis))
    return [d for d, _ in sorted(kept, key=lambda pair: pair[1].role != ROW)]


def is_first(expression: ir.AffineExpr) -> bool:
    """Whether an index is 0, as of a dimension of one element."""
    return isinstance(expression, ir.AffineConstantExpr) and expression.value == 0


def can_be_joined(axes: Sequence[Axis]) -> bool:
    """Whether an element's place along each follows from its place along all of them together."""
    return len(axes) > 1 and all(axis.size == axis.extent for axis in axes[1:])


def kept_dims(op: ir.Operation, small: ir.RankedTensorType, steps: bool = False) -> list[int]:
    """The sliced tensor's dimension behind each dimension of the `small` side of a slice, which may drop unit ones.
    `steps`: strides are allowed."""
    sizes = list(op.opview.static_sizes)
    kept: list[int] = []
    for d, size in enumerate(sizes):
        left = small.rank - len(kept)
        if left and (size != 1 or small.shape[len(kept)] == 1 or len(sizes) - d == left):
            kept.append(d)
    if len(kept) != small.rank or (not steps and any(s != 1 for s in op.opview.static_strides)):
        raise PassError("a slice with strides, or whose dropped dimensions cannot be told, is not lowered", op)
    return kept


def source_indices(
    op: ir.Operation,
    small: ir.RankedTensorType,
    at: Sequence[ir.Value],
    value: Callable[[Size], ir.Value],
    steps: bool = False,
) -> list[ir.Value]:
    """Where the element at `at` of the `small` side of a slice is in the tensor that is sliced; see `kept_dims`.
    `value`: of an offset or a stride."""
    offsets, _, strides = slice_parts(op)
    inside = dict(zip(kept_dims(op, small, steps), at, strict=True))
    found: list[ir.Value] = []
    for d, (offset, stride) in enumerate(zip(offsets, strides, strict=True)):
        start = value(offset)
        if d in inside:
            place = inside[d] if stride == 1 else arith.muli(inside[d], value(stride))
            start = arith.addi(place, start)
        found.append(start)
    return found


def reshaped_dims(op: ir.Operation) -> list[int | None]:
    """As `source_dims`, of tiles."""
    dims = source_dims(op)
    if dims is None:
        raise PassError("a dimension of a tile is split, or several become one: not lowered for GPUs", op)
    return dims


class Axes:
    """The axes of all tiles in the body of a scf.forall, or of a kernel. With `roles` they have one each, as tiles that
    many threads share need."""

    def __init__(self, forall: ir.Operation, roles: bool = True):
        self.forall = forall
        self._parent: dict[Node, Node] = {}
        self._sizes: dict[Node, ir.Value | int] = {}
        self._contractions: list[ir.Operation] = []
        self._reductions: list[ir.Operation] = []
        self._axes: dict[Node, Axis] = {}
        self._outside = set(forall.regions[0].blocks[0].arguments)
        self._block(forall.regions[0].blocks[0])
        self._measure()
        if roles:
            self._assign()

    def is_memory(self, value: ir.Value) -> bool:
        """Whether a tensor lives in memory: it is older than the loop, is its shared output, or a slice of such."""
        if value in self._outside:
            return True
        op = defining_op(value)
        if op is not None and op.name in ("tensor.extract_slice", *RESHAPES):
            return self.is_memory(op.operands[0])
        return not is_made_inside(value, self.forall)

    def of_loop(self, op: ir.Operation, loop: int) -> Axis:
        return self._axes.get(self._find((op, "loop", loop)), Axis())

    def of(self, value: ir.Value, d: int) -> Axis:
        return self._axes.get(self._find((value, d)), Axis())

    # The equivalence of dimensions.

    def _find(self, node: Node) -> Node:
        root = node
        while self._parent.get(root, root) != root:
            root = self._parent[root]
        while node != root:
            self._parent[node], node = root, self._parent.get(node, root)
        return root

    def _union(self, a: Node, b: Node) -> None:
        self._parent.setdefault(a, a)
        self._parent.setdefault(b, b)
        a, b = self._find(a), self._find(b)
        if a != b:
            self._parent[a] = b

    def _same(self, a: ir.Value, b: ir.Value) -> None:
        for d in range(a.type.rank):
            self._union((a, d), (b, d))

    def _block(self, block: ir.Block) -> None:
        for op in ops_of(block):
            if op.name == "scf.for":
                body = for_body(op)
                arguments, yielded = list(body.arguments)[1:], ops_of(body)[-1].operands
                for init, inner, new, result in zip(for_inits(op), arguments, yielded, op.results, strict=True):
                    if isinstance(init.type, ir.RankedTensorType):
                        for other in (init, new, result):
                            self._same(inner, other)
                self._block(body)
            elif op.name == "tensor.extract_slice":
                self._slice(op)
            elif op.name == "tensor.insert_slice":
                self._same(op.operands[1], op.results[0])
                for d, kept in enumerate(kept_dims(op, op.operands[0].type)):
                    self._union((op.operands[0], d), (op.results[0], kept))
            elif op.name in RESHAPES:
                for d, source in enumerate(reshaped_dims(op)):
                    if source is not None:
                        self._union((op.operands[0], source), (op.results[0], d))
            elif op.name == "tensor.empty":
                self._known(op.results[0], iter(op.operands))
            elif is_structured(op):
                self._structured(op)

    def _slice(self, op: ir.Operation) -> None:
        result, sizes = op.results[0], slice_sizes(op)
        for d, kept in enumerate(kept_dims(op, result.type)):
            self._sizes[(result, d)] = sizes[kept]
            if not self.is_memory(op.operands[0]) or self._is_whole(op):
                self._union((result, d), (op.operands[0], kept))

    def _is_whole(self, op: ir.Operation) -> bool:
        """Whether a slice is all of a view of memory that the loop makes: the two are the same tile."""
        view = defining_op(op.operands[0])
        if view is None or view.name != "tensor.expand_shape" or not is_inside(view, self.forall):
            return False
        sizes = mixed(list(view.operands)[1:], view.opview.static_output_shape)
        return sizes == slice_sizes(op) and all(isinstance(o, int) and o == 0 for o in slice_offsets(op))

    def _known(self, value: ir.Value, dynamic: Iterator[ir.Value]) -> None:
        for d, size in enumerate(value.type.shape):
            found = next(dynamic) if size == DYNAMIC else size
            op = defining_op(found) if isinstance(found, ir.Value) else None
            if op is not None and op.name == "tensor.dim" and not self.is_memory(op.operands[0]):
                self._union((value, d), (op.operands[0], constant_value(op.operands[1])))  # as long as that tile
            else:
                self._sizes[(value, d)] = found

    def _structured(self, op: ir.Operation) -> None:
        if any(isinstance(v.type, ir.RankedTensorType) for v in op.results):
            first = len(op.operands) - len(op.results)
            for i, (operand, m) in enumerate(zip(op.operands, indexing_maps(op), strict=True)):
                for d, expression in enumerate(m.results):
                    loop = dim_position(expression)
                    if i >= first:
                        self._union((operand, d), (op.results[i - first], d))
                    if loop is None:
                        if not (isinstance(expression, ir.AffineConstantExpr) and operand.type.shape[d] == 1):
                            raise PassError(f"an operand indexed by {expression} is not lowered for GPUs", op)
                        continue
                    self._union((op, "loop", loop), (operand, d))
                    if operand.type.shape[d] != DYNAMIC:
                        self._sizes.setdefault((operand, d), operand.type.shape[d])
        if is_matmul(op):
            self._contractions.append(op)
        elif reduces(op):
            self._reductions.append(op)

    # Roles and sizes.

    def _measure(self) -> None:
        for node in list(self._parent):
            self._axes.setdefault(self._find(node), Axis(size=0, extent=0))
        unknown, found = set(self._axes), set[Node]()
        for node, size in self._sizes.items():
            if node in self._parent:
                self._widen(self._axes[self._find(node)], size)
                unknown.discard(self._find(node))
        for value, *rest in list(self._parent):  # of memory that is read as a whole
            root = self._find((value, *rest))
            if root in unknown and isinstance(value, ir.Value) and value.type.shape[rest[0]] != DYNAMIC:
                self._widen(self._axes[root], value.type.shape[rest[0]])
                found.add(root)
        if unknown - found:  # it has any size
            raise PassError(UNBOUNDED, self.forall)

    def _assign(self) -> None:
        loops_of = {op: contraction_loops(op) for op in self._contractions}
        in_rows = Counter(id(self.of_loop(op, d)) for op, of in loops_of.items() if of is not None for d in of.m)
        for op, loops in loops_of.items():
            assert loops is not None, "a contraction has loops"
            of_left = [dim_position(e) for e in indexing_maps(op)[0].results]
            batch = {id(self.of_loop(op, d)) for d in loops.batch}
            for role, candidates in ((ROW, loops.m), (COLUMN, loops.n), (COLUMN, loops.k)):
                wide = [d for d in candidates if self.of_loop(op, d).extent != 1]
                if not wide:  # the last one, of rows of those that are rows of most matmuls
                    count = max((in_rows[id(self.of_loop(op, d))] for d in candidates), default=0)
                    wide = [d for d in candidates if role != ROW or in_rows[id(self.of_loop(op, d))] == count][-1:]
                if role == ROW:
                    wide.sort(key=of_left.index)  # in memory's order the copy engine can bring them together
                found = sorted((self.of_loop(op, d) for d in wide), key=lambda axis: axis.size == axis.extent)
                if len(wide) != 1 and not (role == ROW and can_be_joined(found)):
                    what = f"{len(wide)} loops of a matmul are more than one element wide" if wide else "no loop"
                    raise PassError(f"{what} where a tile has one dimension: tile all others by 1", op)
                for axis in found:
                    if axis.role not in (BATCH, role):
                        raise TwoRoles("a dimension is rows of one matmul and columns of another: not lowered yet", op)
                    if id(axis) in batch:  # of one element, through views of it
                        raise TwoRoles("a dimension is a matmul's batch, and its rows or columns: not lowered yet", op)
                    self._join(axis, found if len(found) > 1 else [], op)
                    axis.role = role
            if self.forall.name == "scf.forall":  # its ops get a loop for each axis; those of kernels have them
                self._check_columns(op, (*loops.n, *loops.k))
        if not self._contractions:
            self._assign_by_place()
        for op in self._reductions:
            self._check_reduction(op)
        for node, axis in self._axes.items():
            if axis.role == BATCH and axis.extent > 1:
                owner = node[0] if isinstance(node[0], ir.Operation) else defining_op(node[0])
                raise PassError(
                    f"a dimension of {axis.extent} elements of a tile belongs to no matmul's row or column: tile it "
                    "by 1",
                    owner or self.forall,
                )

    def _check_columns(self, op: ir.Operation, loops: Sequence[int]) -> None:
        columns = [self.of_loop(op, d) for d in loops]
        if any(a is b and a.extent > 1 for i, a in enumerate(columns) for b in columns[:i]):
            raise TwoRoles("a dimension is columns of a matmul and what it sums over: not lowered yet", op)

    @staticmethod
    def _join(axis: Axis, found: list[Axis], op: ir.Operation) -> None:
        """Joins an axis to others, the same ones in all matmuls, in the order of the first."""
        if axis.role == BATCH:
            axis.joined = found
        elif {id(a) for a in axis.joined} != {id(a) for a in found}:
            raise PassError("a dimension is rows of one matmul together with others, and not of another", op)

    def _check_reduction(self, op: ir.Operation) -> None:
        if _is_scan(op):
            raise PassError("running sums are kernels of their own", op)
        for result, m in zip(op.results, indexing_maps(op)[-len(op.results) :], strict=True):
            kept = {dim_position(e) for e in m.results}
            loops = [d for d, kind in enumerate(iterator_types(op)) if kind == "reduction" and d not in kept]
            wide = [self.of_loop(op, d) for d in loops if self.of_loop(op, d).extent > 1]
            for axis in wide:
                if axis.role == BATCH:  # of a constant, which has its dimensions for itself
                    axis.role = COLUMN
            columns = [self.of(result, d) for d in range(result.type.rank) if self.of(result, d).role == COLUMN]
            if any(axis.role != COLUMN for axis in wide) or (wide and any(axis.extent > 1 for axis in columns)):
                raise PassError("only reductions over columns, to a value for each row, are lowered for GPUs", op)

    def _assign_by_place(self) -> None:
        """Where no matmul tells: what tiles share with statistics of their rows are rows, the rest is columns."""
        values = {node[0] for node in self._parent if isinstance(node[0], ir.Value)}
        rank = max((value.type.rank for value in values), default=0)
        tiles = [[self.of(v, d) for d in range(rank)] for v in values if v.type.rank == rank]
        shared = [self.of(v, d) for v in values if v.type.rank < rank for d in range(v.type.rank)]
        for axes in tiles:
            of_rows = [axis for axis in axes if any(axis is other for other in shared)]
            rows = [axis for axis in of_rows if axis.extent > 1] or of_rows[-1:]
            others = [a for a in axes if not any(a is other for other in of_rows)]
            columns = [a for a in others if a.extent > 1] or others[-1:]
            if len(rows) == 1 and len(columns) == 1:
                rows[0].role, columns[0].role = ROW, COLUMN

    def _widen(self, axis: Axis, size: ir.Value | int) -> None:
        extent = upper_bound(size)
        if extent is None:
            raise PassError(UNBOUNDED, self.forall)
        if extent > MOST:
            message = f"a dimension of a tile has {extent} elements: take smaller tiles (tile_sizes), or smaller heads"
            raise PassError(message, self.forall)
        if axis.extent < extent:
            axis.extent = extent
        if not isinstance(axis.size, ir.Value):
            axis.size = size


def _is_scan(op: ir.Operation) -> bool:
    """Whether a result has an element for each step of a reduction, made of what is reduced until then."""
    first, block = len(op.operands) - len(op.results), op.regions[0].blocks[0]
    kinds, maps = iterator_types(op), indexing_maps(op)[first:]
    of_steps = [any(kinds[d] == "reduction" for e in m.results if (d := dim_position(e)) is not None) for m in maps]
    running = {a for a, steps in zip(list(block.arguments)[first:], of_steps, strict=True) if not steps}
    pending = [v for v, steps in zip(ops_of(block)[-1].operands, of_steps, strict=True) if steps]
    while pending:
        value = pending.pop()
        if value in running:
            return True
        maker = defining_op(value)
        pending += maker.operands if maker is not None and maker.block == block else ()
    return False


def inner_dim(value: ir.Value) -> int:
    """The dimension of a spread or loaded tile that stands side by side in the memory that it comes from."""
    op = defining_op(value)
    if op is None or op.name not in ("tile.load", "linalg.generic"):
        return 1
    if op.name == "tile.load":
        dims, last = dims_of(op.opview), op.opview.memory.type.rank - 1
        return dims.index(last) if last in dims else 1
    return next((inner_dim(v) for v in op.operands if layout_of(v.type) == "spread" and v.type.rank == 2), 1)
