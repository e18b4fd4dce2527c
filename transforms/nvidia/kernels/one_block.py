"""What no loop over tiles holds, and one block, or one kernel, can compute as if one did.

A function whose tensors are as small as a tile has no loop left: one block computes them. Where keys are split over
blocks and there is but one tile of queries, the merge of the parts has none either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ....dialects import build
from ....dialects.build import element_of
from ....dialects.mlir import func, ir
from ....dialects.tiling.structured import all_parallel, dim_position, indexing_maps, is_structured
from ...attention import contraction_loops, is_matmul
from ...graph import ancestor_in, operands_with_captures
from ...linear import DYNAMIC
from ...passes import PassError
from ...reshapes import RESHAPES, only_units
from ...rewriting import defining_op, ops_in, ops_of, through
from ...slices import insert_parallel
from ..axes import TwoRoles
from ..elements import byte_width
from ..launched_memory import OF_MEMORY
from ..own_rows import axes_of

ROWS, COLUMNS = 128, 256  # the most that one block computes at once where there is no loop
JOINED_ROWS = 512  # of several loops together: as many as a block has threads for
LEAST_ROWS, MEMORY = 64, 160 << 10  # what is multiplied has room in shared memory, in bytes


def is_one_tile(function: ir.Operation) -> bool:
    """Whether what matmuls compute outside of loops over tiles is as small as a tile."""
    matmuls = [op for op in ops_in(function) if is_matmul(op)]
    return bool(matmuls) and all(map(_is_small, matmuls))


def is_of_tiles(value: ir.Value, block: ir.Block) -> bool:
    """Whether it depends, but by way of loops over tiles, on what ``outline-kernels`` can compute together with it:
    matmuls as small as a tile, and loops that put parts together."""
    pending, known = [value], set()
    while pending:
        op = defining_op(pending.pop())
        if op is None or op in known or op.block != block or op.name == "scf.forall":
            continue
        if is_matmul(op) or op.name.startswith("scf."):
            return True
        known.add(op)
        pending += op.operands
    return False


def fits_one_block(function: ir.Operation) -> bool:
    """Whether it is, and one block can compute it: not where queries and keys are made of one array beside the
    attention, whose rows are rows of one matmul, and columns of another."""
    if not is_one_tile(function):
        return False
    for way in (everything, between_matmuls):
        with ir.InsertionPoint(function):
            spare = function.clone().operation
        try:
            for forall in (forall for ops in way(spare) for forall in one_block(ops)):
                axes_of(forall)
            return True
        except TwoRoles:
            continue
        except PassError:  # which later passes may do without
            return True
        finally:
            spare.erase()
    return False


def _is_of_one_tile(op: ir.Operation) -> bool:
    """Whether an op is a matmul as small as a tile, or a loop with such ones."""
    matmuls = [inner for inner in (op, *ops_in(op)) if is_matmul(inner)]
    return op.name != "scf.forall" and bool(matmuls) and all(map(_is_small, matmuls))


def _is_small(matmul: ir.Operation) -> bool:
    """Whether rows and columns are those of a tile. In a loop an open size, which is below 0, is that of a tile that
    may be cut; elsewhere it may be any."""
    is_tile = not isinstance(matmul.parent.opview, func.FuncOp)
    sizes = {
        dim_position(e): value.type.shape[d]
        for value, m in zip(matmul.operands, indexing_maps(matmul), strict=True)
        for d, e in enumerate(m.results)
    }
    loops = contraction_loops(matmul)
    assert loops is not None, "a contraction has loops"
    most = {**dict.fromkeys((*loops.batch, *loops.m), ROWS), **dict.fromkeys(loops.n, COLUMNS)}
    known = 0 not in sizes.values() and (is_tile or all(sizes[d] != DYNAMIC for d in most))
    if not known or any(sizes[d] > limit for d, limit in most.items()):
        return False
    rows, columns, depth = (math.prod(max(sizes[d], 1) for d in kind) for kind in (loops.m, loops.n, loops.k))
    size = (max(rows, LEAST_ROWS) + columns) * depth * byte_width(element_of(matmul.operands[0].type))
    return rows <= JOINED_ROWS and columns <= COLUMNS and (is_tile or size <= MEMORY)


# What to move into loops of one iteration, each a list of ops in their order; [] where there is nothing.


def everything(function: ir.Operation) -> list[list[ir.Operation]]:
    """All that computes a function's results."""
    moved = [op for op in _body(function)[:-1] if op.name not in ("arith.constant", "tensor.dim")]
    moved = _without_views(moved)
    return [moved] if moved else []


def between_matmuls(function: ir.Operation, sums: bool = True) -> list[list[ir.Operation]]:
    """From matmuls to matmuls, and the element-wise ops, with `sums` also sums, of what they give: what stands around
    attention, such as slices of its result, is left to other kernels."""
    ops = _body(function)[:-1]
    reached = _dependents(ops, [v for op in ops if _has_contraction(op) for v in op.results])
    reaching: set[ir.Operation] = set()
    for op in reversed(ops):
        users = {use.owner.operation for v in op.results for use in v.uses}
        if _has_contraction(op) or reaching & {ancestor_in(user, op.block) for user in users}:
            reaching.add(op)
    core = [op for op in ops if _has_contraction(op) or (op in reached and op in reaching)]
    return _components(_extended(ops, core, [], _is_of_rows if sums else _is_pointwise), _share)


def merges(function: ir.Operation) -> list[list[ir.Operation]]:
    """What puts together the parts that a loop over tiles has made, element by element, with loops or without."""
    ops = _body(function)[:-1]
    made = [v for op in ops if op.name == "scf.forall" for v in op.results]
    found = _components(_extended(ops, [], made, _is_pointwise), _share_elements)
    names = [[op.name for op in part] for part in found]
    return [part for part, has in zip(found, names, strict=True) if "scf.for" in has or has.count("linalg.generic") > 1]


def beside_loops(function: ir.Operation, together: bool = True) -> list[list[ir.Operation]]:
    """Matmuls as small as a tile, or loops along their sum, or over keys, where others have loops over tiles, with what
    is computed of their results: `together`, also by sums over rows, what hangs together, such as an attention and
    its projection; else each by itself, with what is computed element by element. And what `merges` finds."""
    ops, merged = _body(function)[:-1], merges(function)
    taken = {op for part in merged for op in part}
    small = [op for op in ops if _is_of_one_tile(op)]
    parts = []
    for core in [small] if together else [[op] for op in small]:
        extended = _extended(ops, core, [], _is_of_rows if together else _is_pointwise)
        free = [op for op in extended if op not in taken]
        parts += [part for part in _components(free, _share) if any(op in part for op in core)]
        taken.update(op for part in parts for op in part)
    return [*merged, *parts] if parts else []


def _body(function: ir.Operation) -> list[ir.Operation]:
    return ops_of(function.regions[0].blocks[0])


def _has_contraction(op: ir.Operation) -> bool:
    return any(is_matmul(inner) for inner in (op, *ops_in(op)))


def _dependents(ops: Sequence[ir.Operation], values: Sequence[ir.Value]) -> set[ir.Operation]:
    known, found = set(values), set()
    for op in ops:
        if any(v in known for v in _read(op)):
            found.add(op)
            known.update(_made(op))
    return found


def _read(op: ir.Operation) -> list[ir.Value]:
    """What an op depends on: its operands, and the memory that these are views of."""
    return [v for operand in operands_with_captures(op) for v in (operand, _allocated(operand)) if v is not None]


def _made(op: ir.Operation) -> list[ir.Value]:
    """What depends on an op: its results, and memory that a kernel, a producer that is outlined already, may fill."""
    memory = map(_allocated, op.operands) if op.name == "gpu.launch_func" else ()
    return [*op.results, *(v for v in memory if v is not None)]


def _allocated(value: ir.Value) -> ir.Value | None:
    """The memory that a buffer is a view of, if it is made here."""
    source = through(value, *OF_MEMORY)
    op = defining_op(source)
    return source if op is not None and op.name == "memref.alloc" else None


def _extended(
    ops: Sequence[ir.Operation],
    core: Sequence[ir.Operation],
    sources: Sequence[ir.Value],
    suits: Callable[[ir.Operation], bool],
) -> list[ir.Operation]:
    """The ops `core`, and those that suit and depend on these or on `sources`, but not by way of one that does not."""
    kept, inner, outer = set(core), set(sources), set()  # values of what is moved, and of what depends on it
    found = []
    for op in ops:
        read = operands_with_captures(op)
        reads = any(v in inner for v in read)
        direct = not any(v in inner for one in ops_in(op) if one.name == "tensor.extract" for v in one.operands)
        if op in kept or (reads and direct and suits(op) and not any(v in outer for v in read)):
            found.append(op)
            inner.update(op.results)
        elif op.name != "scf.forall" and (reads or any(v in outer for v in read)):
            outer.update(op.results)
    return _without_views(found)


def _without_views(ops: list[ir.Operation]) -> list[ir.Operation]:
    """But for the views at the end, which the host makes."""
    while ops and (ops[-1].name == "tensor.extract_slice" or _drops_units(ops[-1])):
        ops.pop()
    return ops


def _is_of_rows(op: ir.Operation) -> bool:
    """Whether an op is computed on tiles, element by element or row by row."""
    if op.name != "linalg.generic":
        return _drops_units(op)
    return all(dim_position(e) is not None for m in indexing_maps(op) for e in m.results)


def _drops_units(op: ir.Operation) -> bool:
    return op.name in RESHAPES and only_units(op)


def _is_pointwise(op: ir.Operation) -> bool:
    """Whether an op computes an element from the same elements of others; loops of such ones do."""
    if op.name == "scf.for":
        return all(_is_pointwise(inner) for inner in ops_in(op) if is_structured(inner))
    if op.name == "tensor.extract_slice" or _drops_units(op):
        return True
    return op.name == "linalg.generic" and _is_of_rows(op) and all_parallel(op)


def _components(
    ops: Sequence[ir.Operation], share: Callable[[ir.Operation, ir.Operation], bool]
) -> list[list[ir.Operation]]:
    """The ops by what hangs together, as one reads the other or both `share` something, and can be computed at one
    time: nothing that depends on one of them comes before another one."""
    parts: list[list[ir.Operation]] = []
    times = _times(ops)
    for op in ops:
        read = {defining_op(v) for v in operands_with_captures(op)}
        mine = [
            part
            for part in parts
            if times[part[0]] == times[op] and any(other in read or share(other, op) for other in part)
        ]
        joined = [other for part in mine for other in part]
        parts = [part for part in parts if not any(part is other for other in mine)]
        parts.append([*joined, op])
    order = {op: i for i, op in enumerate(ops)}
    return [sorted(part, key=lambda op: order[op]) for part in parts]


def _times(ops: Sequence[ir.Operation]) -> dict[ir.Operation, int]:
    """Of each of them, how often what it depends on leaves them, by way of other ops such as the next matmul::

        %x = merge %parts0          // 0
        %parts1 = scf.forall … %x
        %y = merge %parts1, %x      // 1

    Those of one number do not wait for each other by way of others.
    """
    inside, times, makers = set(ops), dict[ir.Operation, int](), dict[ir.Value, ir.Operation]()
    for op in ops_of(ops[0].block) if ops else []:
        before = [makers[v] for v in _read(op) if v in makers]
        times[op] = max((times[d] + (d in inside and op not in inside) for d in before), default=0)
        makers.update(dict.fromkeys(_made(op), op))
    return times


def _share(a: ir.Operation, b: ir.Operation) -> bool:
    """Whether both read what one loop over tiles has made."""
    loops = [{op for v in operands_with_captures(x) if (op := defining_op(v)) is not None} for x in (a, b)]
    return any(op.name == "scf.forall" for op in loops[0] & loops[1])


def _share_elements(a: ir.Operation, b: ir.Operation) -> bool:
    """The same, where an element of one is of no more than a row of the other's, as of a sum and of what it divides.
    Others, such as of keys' gradients and of values', would be computed for each two of their elements."""
    first, second = (_elements(op) for op in (a, b))
    return _share(a, b) and all(one == other for one, other in zip(first, second, strict=False))


def _elements(op: ir.Operation) -> list[int]:
    """The sizes of what an op computes, but those of 1."""
    shapes = [v.type.shape for v in op.results if isinstance(v.type, ir.RankedTensorType)]
    return [size for size in max(shapes, key=len, default=[]) if size != 1]


def check_order(function: ir.Operation) -> None:
    """Refuses ops that read what stands behind them: of two parts one may need another that needs it in turn."""
    place = {op: number for number, op in enumerate(_body(function))}
    for op, number in place.items():
        makers = (defining_op(v) for v in operands_with_captures(op))
        if any(place.get(maker, -1) >= number for maker in makers if maker is not None and maker != op):
            raise PassError("parts of it need each other", op)


def one_block(moved: Sequence[ir.Operation]) -> list[ir.Operation]:
    """Moves ops into a scf.forall of one iteration, where they have results that it can have."""
    inside, block = set(moved), moved[0].block
    outside = [
        (use.owner.operation, use.operand_number)
        for op in moved
        for v in op.results
        for use in v.uses
        if ancestor_in(use.owner.operation, block) not in inside
    ]
    results = list(dict.fromkeys(user.operands[number] for user, number in outside))
    kinds = [v.type for v in results]
    if not kinds or not all(isinstance(k, ir.RankedTensorType) and k.has_static_shape for k in kinds):
        return []
    *_, last = moved
    between = [op for op in ops_of(block)[: ops_of(block).index(last)] if op not in inside]
    late = _dependents(between, results)
    with ir.InsertionPoint(last), last.location:
        inits = [build.empty(kind.shape, kind.element_type) for kind in kinds]
        one = ir.DenseI64ArrayAttr.get([1])
        attributes = {
            "staticLowerBound": ir.DenseI64ArrayAttr.get([0]),
            "staticUpperBound": one,
            "staticStep": one,
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0, 0, len(inits)]),
        }
        forall = ir.Operation.create("scf.forall", kinds, inits, attributes, regions=1)
        arguments = [ir.IndexType.get(), *kinds]
        body = forall.regions[0].blocks.append(*arguments, arg_locs=[last.location] * len(arguments))
        after = forall
        for op in between:
            if op in late:
                op.move_after(after)
                after = op
        for op in moved:
            body.append(op)
        with ir.InsertionPoint(body):
            inserts = ir.Operation.create("scf.forall.in_parallel", [], [], {}, regions=1)
        with ir.InsertionPoint(inserts.regions[0].blocks.append()):
            for value, target in zip(results, list(body.arguments)[1:], strict=True):
                insert_parallel(value, target, [0] * value.type.rank, value.type.shape)
    new = dict(zip(results, forall.results, strict=True))
    for user, number in outside:
        user.operands[number] = new[user.operands[number]]
    return [forall]
