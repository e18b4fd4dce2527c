"""How masks look in kernels: element-wise ops on tiles, elements of which become −inf by selects, or 0 where there is
no softmax."""

from __future__ import annotations

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir
from ...dialects.tiling.structured import indexing_maps, iterator_types
from ..attention import is_matmul
from ..rewriting import defining_op, erase_if_unused, ops_of

LOWEST = float("-inf")
OF_MASKS = -1024.0  # what is below it is a mask's number
_IS = arith.CmpIPredicate
_PAIRS = [(_IS.eq, _IS.ne), (_IS.slt, _IS.sge), (_IS.sle, _IS.sgt), (_IS.ult, _IS.uge), (_IS.ule, _IS.ugt)]
_OPPOSITES = {int(a): b for pair in _PAIRS for a, b in (pair, pair[::-1])}


def modifies_first(op: ir.Operation) -> bool:
    """Whether `op` makes one tile, each element from that of its first operand at the same place and from others."""
    return (
        op.name == "linalg.generic"
        and not is_matmul(op)
        and len(op.results) == 1
        and set(iterator_types(op)) == {"parallel"}
        and op.operands[0].type == op.results[0].type
        and indexing_maps(op)[0] == indexing_maps(op)[-1]
    )


def yielded(op: ir.Operation) -> ir.Value:
    """The element that an op with one result makes."""
    return ops_of(op.regions[0].blocks[0])[-1].operands[0]


def masks(value: ir.Value, number: float = LOWEST, finite: bool = False) -> list[ir.Operation]:
    """The ops select(c, −inf, x), each of which gives the x of the one before it, that make an element; or those of
    another `number`, and with `finite` of any that is as low as masks are."""
    found: list[ir.Operation] = []
    while (op := defining_op(value)) is not None and op.name == "arith.select":
        if not _is_mask(op.operands[1], number, finite):
            break
        found.append(op)
        value = op.operands[2]
    return found


def unmasked(value: ir.Value, number: float = LOWEST, finite: bool = False) -> ir.Value:
    """What an element is where none of the masks holds."""
    found = masks(value, number, finite)
    return found[-1].operands[2] if found else value


def _is_mask(value: ir.Value, number: float, finite: bool) -> bool:
    constant = constant_value(value)
    return constant == number or (finite and isinstance(constant, float) and constant <= OF_MASKS)


def say_what_is_dead(op: ir.Operation, number: float = LOWEST, finite: bool = False) -> None:
    """Turns select(c, x, −inf), the masks that end an op with one result, into select(not c, −inf, x), as `masks` finds
    them; or those of another `number`, if they are by position."""
    user, at = ops_of(op.regions[0].blocks[0])[-1], 0  # operand `at` of `user` is what is looked at
    while (select := defining_op(user.operands[at])) is not None and select.name == "arith.select":
        condition, then, otherwise = select.operands
        if _is_mask(otherwise, number, finite) and constant_value(then) is None:
            if number != LOWEST and not _is_by_position(condition):
                break
            with ir.InsertionPoint(select), select.location:
                dead = _negation(condition)
                new = ir.Operation.create("arith.select", [then.type], [dead, otherwise, then])
            select.results[0].replace_all_uses_with(new.result)
            select.erase()
            erase_if_unused(defining_op(condition))
            select = new
        if not _is_mask(select.operands[1], number, finite):
            break
        user, at = select, 2


def is_rising_line(value: ir.Value, element: ir.Value) -> bool:
    """Whether `value` is `element` times a positive constant, plus or minus a position, in that body: −inf where
    `element` is."""
    op = defining_op(value)
    if op is None or op.block != element.owner:
        return False
    if op.name in ("arith.addf", "arith.subf"):
        a, b = op.operands
        orders = ((a, b), (b, a)) if op.name == "arith.addf" else ((a, b),)
        return any(is_rising_line(x, element) and _is_position(y, op.block) for x, y in orders)
    factors = [constant_value(v) for v in op.operands] if op.name == "arith.mulf" else []
    return any(op.operands[1 - i] == element and (factor or 0) > 0 for i, factor in enumerate(factors))


def _is_position(value: ir.Value, body: ir.Block) -> bool:
    """Whether a float is an integer that was computed from indices, or that times what is the same for a tile."""
    op = defining_op(value)
    if op is None or op.block != body:
        return False
    if op.name == "arith.mulf":
        a, b = op.operands
        return any(_is_position(x, body) and _is_scalar(y, body) for x, y in ((a, b), (b, a)))
    return op.name == "arith.sitofp" and _is_scalar(op.operands[0], body)


def _is_scalar(value: ir.Value, body: ir.Block) -> bool:
    """Whether a value is computed from nothing but indices and what is one for all elements of a tile."""
    op = defining_op(value)
    if op is not None:
        return op.block != body or all(_is_scalar(v, body) for v in op.operands)
    if value.owner != body:
        return True
    return not isinstance(body.owner.operands[value.arg_number].type, ir.ShapedType)


def _is_by_position(condition: ir.Value) -> bool:
    """Whether nothing that is loaded or computed as a float takes part in a condition."""
    op = defining_op(condition)
    return not isinstance(condition.type, ir.FloatType) and (op is None or all(map(_is_by_position, op.operands)))


def _negation(condition: ir.Value) -> ir.Value:
    """The opposite of a condition, by the opposites of its comparisons where it is made of such."""
    op = defining_op(condition)
    if op is not None and op.name == "arith.cmpi":
        predicate = _OPPOSITES[ir.IntegerAttr(op.attributes["predicate"]).value]
        return arith.cmpi(predicate, *op.operands)
    if op is not None and op.name in ("arith.andi", "arith.ori"):  # canonicalize undoes a negation of the whole
        sides = [_negation(v) for v in op.operands]
        return arith.ori(*sides) if op.name == "arith.andi" else arith.andi(*sides)
    return arith.xori(condition, build.constant(condition.type, 1))
