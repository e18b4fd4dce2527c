"""The pass ``own-inits``."""

from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir
from ..dialects.tiling.structured import moves_first
from .extents import known_sizes
from .passes import Pass
from .rewriting import defining_op, ops_in

LOOPS = ("scf.for", "scf.forall")
INSERTS = ("tensor.insert_slice", "tensor.parallel_insert_slice")


@dataclass(frozen=True)
class OwnInits(Pass):
    """Gives each op that accumulates into a filled tensor, or writes to an empty one, its own, right before it::

        %e = tensor.empty()
        %0 = linalg.fill ins(%zero) outs(%e)
        scf.for … { %1 = linalg.matmul … outs(%0) … %2 = linalg.matmul … outs(%0) }
    becomes
        scf.for … {
          %d = tensor.empty()
          %a = linalg.fill ins(%zero) outs(%d)
          %1 = linalg.matmul … outs(%a)
          %e = tensor.empty()
          %b = linalg.fill ins(%zero) outs(%e)
          %2 = linalg.matmul … outs(%b)
        }

    A shared fill would have to live on and be copied for each of them. A shared empty tensor says that two results
    have the same dimensions, or may share memory, where they only happen to be of one size: also of a loop that carries
    both, in one buffer as one-shot-bufferize has it. So does a fill of another tensor's slice, whose copies fill empty
    tensors, and a slice itself that several ops write to and none of them reads: it is left to the one whose result is
    inserted where it was. Bufferization puts all of them there, one after the other, before the others are copied.
    """

    def run(self, op: ir.Operation) -> None:
        for is_init in (_is_fill, lambda init: init.name == "tensor.empty"):
            for init in ops_in(op):
                if is_init(init) and init.results:
                    _give_each_its_own(init)
        for part in ops_in(op, "tensor.extract_slice"):
            _leave_to_its_own(part)


def _is_fill(op: ir.Operation) -> bool:
    """True for linalg.fill, named or generic."""
    if op.name != "linalg.generic" or len(op.operands) != 2 or isinstance(op.operands[0].type, ir.ShapedType):
        return op.name == "linalg.fill"
    return moves_first(op)


def _give_each_its_own(init: ir.Operation) -> None:
    uses = list(init.results[0].uses)
    for use in uses:
        user = use.owner.operation
        is_carried = user.name in LOOPS and (not _is_fill(init) or sum(u.owner.operation == user for u in uses) > 1)
        if not (user.name.startswith("linalg.") or is_carried) or not _is_init(user, use):
            continue
        if (_is_fill(user) and _is_fill(init)) or (len(uses) == 1 and user.block == init.block):
            continue
        with ir.InsertionPoint(user), init.location:
            user.operands[use.operand_number] = _copy(init)
    if not list(init.results[0].uses):
        init.erase()


def _leave_to_its_own(part: ir.Operation) -> None:
    """Gives ops that write to a slice, whose elements they do not read, an empty tensor, if there are several."""
    writers = [(use.owner.operation, use.operand_number) for use in part.results[0].uses if _overwrites(use)]
    for user, number in writers if len(writers) > 1 else []:
        if not _goes_back(user, part):
            with ir.InsertionPoint(user), part.location:
                user.operands[number] = build.empty(known_sizes(part.results[0]), part.results[0].type.element_type)


def _overwrites(use: ir.OpOperand) -> bool:
    """Whether the use is a destination of an op that does not read it."""
    user = use.owner.operation
    if not user.name.startswith("linalg.") or not _is_init(user, use):
        return False
    return not list(user.regions[0].blocks[0].arguments[use.operand_number].uses)


def _goes_back(op: ir.Operation, part: ir.Operation) -> bool:
    """Whether a result of `op` is inserted into what the slice is of."""
    users = [use.owner.operation for result in op.results for use in result.uses]
    return any(user.name in INSERTS and user.operands[1] == part.operands[0] for user in users)


def _copy(init: ir.Operation) -> ir.Value:
    """The same tensor; not in the place that another one has a slice for."""
    target = defining_op(init.operands[-1]) if _is_fill(init) else None
    if target is None or target.name != "tensor.extract_slice":
        return init.clone().operation.results[0]
    value = target.results[0]
    empty = build.empty(known_sizes(value), value.type.element_type)
    own = init.clone().operation
    own.operands[len(own.operands) - 1] = empty
    return own.results[0]


def _is_init(user: ir.Operation, use: ir.OpOperand) -> bool:
    """True if the use is one of the op's destinations: they come last, one per result."""
    return use.operand_number >= len(user.operands) - len(user.results)
