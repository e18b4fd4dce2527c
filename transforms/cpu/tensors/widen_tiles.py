"""The pass ``widen-tiles``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tiling.structured import indexing_maps
from ...extents import known_sizes
from ...host import is_refused, matrix_unit
from ...passes import Pass, option, warn
from ...rewriting import defining_op, erase_if_unused, ops_in, terminator
from ..matrix_unit import MATRIX_OPTION, is_for_matrix_unit, is_native, suits
from .tile_values import CARRYING, before, can_change, carried_pairs, carried_uses, tile_values


@dataclass(frozen=True)
class WidenTiles(Pass):
    """Keeps in f32 what a parallel loop computes in tiles of narrow floats, statistics and accumulators included::

        %s = linalg.generic … ins(%q, %k : tensor<64x64xbf16>, …) outs(%0 : tensor<64x128xbf16>) {
        ^bb0(%a: bf16, %b: bf16, %c: bf16): … %r = arith.truncf %sum : f32 to bf16   yield %r }
    becomes
        %s = linalg.generic … ins(%q, %k : tensor<64x64xbf16>, …) outs(%0 : tensor<64x128xf32>) {
        ^bb0(%a: bf16, %b: bf16, %c: f32): … yield %sum }

    What comes from outside of the loop stays as it is, what leaves it is rounded there, once. Factors that a matrix
    unit multiplies stay narrow: P of P·V is rounded to the type that the graph gives it.

    Floats of 8 bits are rounded wherever the graph says so, and kept in f32 all the same; as factors, in bf16, which
    all of them are.
    """

    matrix: str = option(MATRIX_OPTION, "")

    def run(self, op: ir.Operation) -> None:
        unit = matrix_unit(self.matrix)
        for loop in ops_in(op, "scf.forall"):
            if not self.matrix and is_refused() and is_for_matrix_unit(loop, "amx-bf16"):
                warn(loop, "computed in f32: the system refuses AMX's tiles to this process (arch_prctl)")
            _Widening(loop, unit).apply()


class _Widening:
    def __init__(self, loop: ir.Operation, unit: str):
        self.loop = loop
        self.wide: dict[ir.Value, ir.Type] = {}  # what changes, and the new element type
        for value in tile_values(loop):
            if can_change(value, loop) and build.is_narrow(value.type.element_type):
                if not _is_factor(value, unit):
                    self.wide[value] = ir.F32Type.get(loop.context)
                elif build.is_float8(value.type.element_type):
                    self.wide[value] = ir.BF16Type.get(loop.context)

    def apply(self) -> None:
        for op in ops_in(self.loop):
            if op.name == "linalg.generic":
                self._generic(op)
            elif op.name in ("tensor.extract_slice", "tensor.insert_slice"):
                tensors = 2 if op.name == "tensor.insert_slice" else 1
                for number in range(tensors):
                    op.operands[number] = self._as(op.operands[number], self._element(op.results[0]), op)
            elif op.name in CARRYING:
                for result, other in carried_pairs(op):
                    if self._element(result) != self._element(other):
                        for user, number in carried_uses(op, result, other):
                            user.operands[number] = self._as(other, self._element(result), user)
            elif op.name not in ("scf.yield", "tensor.dim", "tensor.empty"):
                for number, operand in enumerate(op.operands):
                    if operand in self.wide:
                        op.operands[number] = self._as(operand, operand.type.element_type, op)
        for value, element in self.wide.items():
            value.set_type(ir.RankedTensorType.get(value.type.shape, element, value.type.encoding))

    def _element(self, value: ir.Value) -> ir.Type:
        """The element type that `value` gets, or keeps."""
        return self.wide.get(value, value.type.element_type if isinstance(value.type, ir.ShapedType) else value.type)

    def _generic(self, op: ir.Operation) -> None:
        n_inputs = len(op.operands) - len(op.results)
        for number, operand in enumerate(list(op.operands)):
            if not isinstance(operand.type, ir.ShapedType):
                if build.is_narrow(operand.type):
                    with ir.InsertionPoint(op), op.location:
                        op.operands[number] = build.convert(operand, ir.F32Type.get())
                    widen_argument(op, number)
            elif number < n_inputs:
                if operand in self.wide:
                    widen_argument(op, number, self.wide[operand])
            else:
                result = op.results[number - n_inputs]
                is_read = bool(list(op.regions[0].blocks[0].arguments[number].uses))
                op.operands[number] = self._as(operand, self._element(result), op, is_read)
                if result in self.wide:
                    widen_argument(op, number, self.wide[result])
                    widen_yield(op, number - n_inputs, self.wide[result])

    def _as(self, value: ir.Value, element: ir.Type, user: ir.Operation, is_read: bool = True) -> ir.Value:
        """`value` with this element type; converted in front of `user` if it has another one."""
        if self._element(value) == element:
            return value
        with ir.InsertionPoint(before(user)), user.location:
            init = build.empty(known_sizes(value), element)
            if not is_read:
                return init
            (copy,) = self._converted(value, init, element)
        return copy

    def _converted(self, value: ir.Value, init: ir.Value, element: ir.Type) -> list[ir.Value]:
        n = value.type.rank
        maps = [build.projection(n, range(n))] * 2
        copy = build.generic([value], [init], maps, [build.PARALLEL] * n, lambda x, _: build.convert(x, element))
        if value in self.wide:  # its type changes at the end: so far the op yields what it reads
            op = copy[0].owner.operation
            widen_argument(op, 0, self.wide[value])
        return copy


def _is_factor(value: ir.Value, unit: str) -> bool:
    """True if an op makes `value` only for a matrix unit to multiply it as it is."""
    made, uses = defining_op(value), list(value.uses)
    return (
        made is not None
        and made.name == "linalg.generic"
        and is_native(unit, value.type.element_type)
        and indexing_maps(made)[len(made.operands) - len(made.results) + value.result_number].is_permutation
        and bool(uses)
        and all(use.operand_number < 2 and suits(use.owner.operation, unit) for use in uses)
    )


def widen_argument(generic: ir.Operation, number: int, element: ir.Type | None = None) -> None:
    """Makes the body take `element`, by default f32, for a narrow argument."""
    argument = generic.regions[0].blocks[0].arguments[number]
    narrow, wide = argument.type, element or ir.F32Type.get(generic.context)
    if not build.is_narrow(narrow):
        return
    uses = [(u.owner.operation, u.operand_number) for u in argument.uses]
    argument.set_type(wide)
    rounded = None
    for user, position in uses:
        if user.name == "arith.extf" and user.results[0].type.width >= wide.width:
            if user.results[0].type == wide:
                user.results[0].replace_all_uses_with(argument)
                user.erase()
            continue
        if rounded is None:
            with ir.InsertionPoint.at_block_begin(generic.regions[0].blocks[0]), generic.location:
                rounded = arith.truncf(narrow, argument)
        user.operands[position] = rounded


def widen_yield(generic: ir.Operation, number: int, wide: ir.Type) -> None:
    """Makes the body yield `wide` for a narrow result; one of 8 bits is rounded to them all the same."""
    block = generic.regions[0].blocks[0]
    end = terminator(block)
    value = end.operands[number]
    if not build.is_narrow(value.type):
        return
    made, is_rounded = defining_op(value), build.is_float8(value.type)
    if made is not None and made.name == "arith.truncf" and made.operands[0].type == wide and not is_rounded:
        end.operands[number] = made.operands[0]
        erase_if_unused(made)
    else:
        with ir.InsertionPoint(end), generic.location:
            end.operands[number] = arith.extf(wide, value)
