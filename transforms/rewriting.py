"""Helpers of passes that walk and change IR."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from ..dialects.mlir import ir, rewrite

Values = dict[ir.Value, ir.Value]


def ops_in(op: ir.Operation, *names: str) -> list[ir.Operation]:
    """All ops inside `op` (inner ones before their parents) that have one of the names, or any if there are none.

    A name that ends in a dot is a dialect's, and stands for all of its ops. Where there is none of these, upstream's
    driver of patterns looks, in a tenth of the time: it calls Python for what has one of the names alone. A walk of a
    whole module takes as long as many a pass: a pass that looks for several kinds asks for all at once.
    """
    found: list[ir.Operation] = []
    op = op.operation
    if names and not any(name.endswith(".") for name in names):

        def note(inner: ir.Operation, _: rewrite.PatternRewriter) -> bool:
            found.append(inner.operation)
            return True  # nothing is rewritten

        patterns = rewrite.RewritePatternSet(op.context)
        for name in names:
            patterns.add(name, note)
        rewrite.walk_and_apply_patterns(op, patterns.freeze())
        return found

    dialects = tuple(name for name in names if name.endswith("."))

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if not names or inner.name in names or (dialects and inner.name.startswith(dialects)):
            found.append(inner.operation)
        return advance

    advance = ir.WalkResult.ADVANCE
    op.walk(visit, ir.WalkOrder.POST_ORDER)
    if found and found[-1] == op:
        found.pop()  # itself, which comes last
    return found


def ops_of(block: ir.Block) -> list[ir.Operation]:
    return [op.operation for op in block.operations]


def terminator(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def functions_of(module: ir.Operation) -> list[ir.Operation]:
    """The functions of a module that have a body."""
    return [op for op in ops_of(module.regions[0].blocks[0]) if op.name == "func.func" and len(op.regions[0].blocks)]


def for_body(loop: ir.Operation) -> ir.Block:
    """Of a scf.for, or of any other op of one block."""
    return loop.regions[0].blocks[0]


def for_inits(loop: ir.Operation) -> list[ir.Value]:
    """What a scf.for carries, before the first iteration."""
    return list(loop.operands)[3:]


def make_for(bounds: Sequence[ir.Value], inits: Sequence[ir.Value] = ()) -> tuple[ir.Operation, ir.Block]:
    """A scf.for that carries `inits`, at the insertion point, and its body, which still lacks the scf.yield."""
    types = [v.type for v in inits]
    loop = ir.Operation.create("scf.for", types, [*bounds, *inits], regions=1)
    kinds = [bounds[0].type, *types]
    return loop, loop.regions[0].blocks.append(*kinds, arg_locs=[loop.location] * len(kinds))


def make_while(
    inits: Sequence[ir.Value], kinds: Sequence[ir.Type] | None = None
) -> tuple[ir.Operation, ir.Block, ir.Block]:
    """A scf.while that carries `inits`, at the insertion point: the block that still lacks the scf.condition, and the
    one that still lacks the scf.yield, to which what is of `kinds` goes on, by default as many as inits."""
    types = [v.type for v in inits]
    kinds = types if kinds is None else list(kinds)
    loop = ir.Operation.create("scf.while", kinds, list(inits), regions=2)
    places = zip(loop.regions, (types, kinds), strict=True)
    condition, body = (r.blocks.append(*of, arg_locs=[loop.location] * len(of)) for r, of in places)
    return loop, condition, body


def carried_number(argument: ir.Value) -> int | None:
    """Which one a block argument is of what a scf.for or scf.forall carries, or shares; None for any other."""
    loop = argument.owner.owner.operation
    if loop.name not in ("scf.for", "scf.forall"):
        return None
    number = ir.BlockArgument(argument).arg_number - (len(argument.owner.arguments) - len(loop.results))
    return number if number >= 0 else None


def carried_init(argument: ir.Value) -> ir.Value | None:
    """What it is before the first iteration."""
    loop, number = argument.owner.owner.operation, carried_number(argument)
    return loop.operands[len(loop.operands) - len(loop.results) + number] if number is not None else None


def copy_op(op: ir.Operation, values: Values) -> ir.Operation:
    """A copy of `op` at the insertion point, on what `values` says; also for what its region reads."""
    clone = op.clone().operation
    for inner in [clone, *ops_in(clone)]:
        for i, v in enumerate(inner.operands):
            if v in values:
                inner.operands[i] = values[v]
    values.update(zip(op.results, clone.results, strict=True))
    return clone


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The operation whose result `value` is; None for a block argument."""
    owner = value.owner  # which is made each time that it is asked for
    return None if isinstance(owner, ir.Block) else owner.operation


def is_constant(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and op.name == "arith.constant"


def through(value: ir.Value, *names: str) -> ir.Value:
    """What `value` is before ops of these names, each of which is looked through, to its first operand."""
    while (op := defining_op(value)) is not None and op.name in names:
        value = op.operands[0]
    return value


def ancestors(op: ir.Operation) -> Iterator[ir.Operation]:
    """The operations around `op`, the nearest first."""
    parent = op.operation.parent
    while parent is not None:
        yield parent.operation
        parent = parent.operation.parent


def is_inside(op: ir.Operation, outer: ir.Operation) -> bool:
    """True if `op` lies in a region of `outer`, at any depth."""
    return any(a == outer.operation for a in ancestors(op))


def is_made_inside(value: ir.Value, outer: ir.Operation) -> bool:
    """True if `value` is made in a region of `outer`, or is an argument of one."""
    maker = value.owner.owner.operation if isinstance(value.owner, ir.Block) else value.owner.operation.parent
    return maker is not None and (maker.operation == outer.operation or is_inside(maker, outer))


@contextlib.contextmanager
def only_if(condition: ir.Value | None) -> Iterator[None]:
    """What is emitted within the block runs where `condition` holds; None: always."""
    if condition is None:
        yield
        return
    branch = ir.Operation.create("scf.if", [], [condition], regions=2)
    with ir.InsertionPoint(branch.regions[0].blocks.append()):
        yield
        ir.Operation.create("scf.yield")


def either(
    condition: ir.Value,
    kinds: Sequence[ir.Type],
    then: Callable[[], Sequence[ir.Value]],
    other: Callable[[], Sequence[ir.Value]],
) -> list[ir.Value]:
    """The values, of these types, that `then` emits where `condition` holds, or else `other`."""
    branch = ir.Operation.create("scf.if", list(kinds), [condition], regions=2)
    for region, emit in zip(branch.regions, (then, other), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            ir.Operation.create("scf.yield", [], list(emit()))
    return list(branch.results)


def single_use(value: ir.Value) -> bool:
    return len(list(value.uses)) == 1


def erase_if_unused(op: ir.Operation | None) -> None:
    """Erases `op` if none of its results has a use. Its operands' producers are left to canonicalization."""
    if op is not None and not any(list(r.uses) for r in op.results):
        op.erase()


def erase_dead(block: ir.Block) -> None:
    """Erases what a block computes of tensors and numbers and nothing uses."""
    for op in reversed(ops_of(block)):
        if op.name.startswith(("tensor.", "linalg.", "arith.", "math.")) and len(op.results):
            erase_if_unused(op)


def inside_branches(op: ir.Operation) -> list[ir.Block]:
    """The block of `op`, and those around that a branch that it is in stands in, the nearest first."""
    found = [op.block]
    for around in ancestors(op):
        if around.name != "scf.if":
            break
        found.append(around.block)
    return found


def are_exclusive(users: list[ir.Operation]) -> bool:
    """True if at most one of the ops runs: any two of them are in different branches of one scf.if."""
    paths = [_branches(user) for user in users]
    return all(
        any(number != b[branch] for branch, number in a.items() if branch in b)
        for i, a in enumerate(paths)
        for b in paths[:i]
    )


def _branches(op: ir.Operation) -> dict[ir.Operation, int]:
    """Each scf.if around `op`, and the number of the region that it is in."""
    found, inner = {}, op
    for around in ancestors(op):
        if around.name == "scf.if":
            blocks = [list(region.blocks) for region in around.regions]
            found[around] = next(i for i, found_blocks in enumerate(blocks) if inner.block in found_blocks)
        inner = around
    return found
