"""Evaluates the scalar body of a structured op on scalars and vectors."""

from collections.abc import Callable, Sequence

from ...dialects import build
from ...dialects.mlir import arith, ir, vector
from ..rewriting import defining_op
from . import pair_powers, pairs
from .structured import Structured

Point = tuple[int, ...]
FUSED = {("arith.addf", 0), ("arith.addf", 1), ("arith.subf", 0)}  # users of a product, and which operand it is
ROUNDED_FIRST = "linalg_ext.rounded_first"  # on a product: it is rounded before it is added to anything
PAIRED: dict[str, Callable[..., ir.Value]] = {
    "pair.product": pairs.multiply_add,
    "pair.pack": pairs.pack,
    "pair.exp2": pair_powers.exp2,
}
ORDERED = {"arith.maxnumf": arith.CmpFPredicate.OGT, "arith.minnumf": arith.CmpFPredicate.OLT}


def register_type(kind: ir.Type) -> ir.Type:
    """What an element is while it is computed with: f32 for narrow floats."""
    return build.compute_type(kind)


class BodyEvaluator:
    """Clones a body with vectors in place of those scalars that vary along the lanes.

    Multiply-add becomes a fused one, of pairs one dot product. Conversions between a narrow float and f32 disappear:
    the values stay f32, which rounds less often than the body says, never more. To 8 bits they are rounded wherever the
    body says so: what has 3 bits is meant to.
    """

    def __init__(self, op: Structured, lanes: int, from_numbers: Sequence[ir.Value] = ()):
        """`from_numbers`: arguments, accumulators, whose initial values are not NaN."""
        self.op = op
        self.lanes = lanes
        self.from_numbers = from_numbers
        self.cache: dict[tuple, ir.Value] = {}

    def evaluate(
        self,
        operands: dict[int, ir.Value],
        point: Point,
        index: Callable[[int, Point], ir.Value],
        compared: Callable[[ir.Operation, Point], ir.Value | None] = lambda inner, point: None,
    ) -> list[ir.Value]:
        """The values that the body yields, given its arguments' values by number.

        `index` tells linalg.index; `compared` the result of a comparison, where it takes less than what it compares."""
        values: dict[ir.Value, ir.Value] = {}
        for number, value in operands.items():
            values[self.op.body.arguments[number]] = value
        products = self._fused_products()
        for inner in self.op.body_ops:
            if inner.name == "linalg.index":
                values[inner.results[0]] = index(inner.attributes["dim"].value, point)
            elif inner not in products:
                known = compared(inner, point) if inner.name == "arith.cmpi" else None
                values[inner.results[0]] = self._op(inner, values, products) if known is None else known
        return [self._value(v, values) for v in self.op.end.operands]

    def _fused_products(self) -> list[ir.Operation]:
        """The products whose one use is an arith.addf, or from which an arith.subf subtracts: both become an fma."""
        if not hasattr(self, "_products"):
            self._products: list[ir.Operation] = []
            for inner in self.op.body_ops:
                if inner.name in ("arith.mulf", "pair.product") and ROUNDED_FIRST not in inner.attributes:
                    uses = list(inner.results[0].uses)
                    if len(uses) == 1 and (uses[0].owner.operation.name, uses[0].operand_number) in FUSED:
                        other = uses[0].owner.operation.operands[1 - uses[0].operand_number]
                        if not any(other == p.results[0] for p in self._products):  # a·b + c·d: fuse one
                            self._products.append(inner)
        return self._products

    def _value(self, value: ir.Value, values: dict[ir.Value, ir.Value]) -> ir.Value:
        """The value that stands for `value`; from outside of the body, itself in its register type."""
        if value not in values:
            values[value] = self.to_register(value)
        return values[value]

    def _op(self, inner: ir.Operation, values: dict, products: list[ir.Operation]) -> ir.Value:
        result = register_type(inner.results[0].type)
        if inner.name == "arith.constant":
            attribute = inner.attributes["value"]
            if build.is_narrow(inner.results[0].type):
                attribute = ir.FloatAttr.get(result, attribute.value)
            return arith.ConstantOp(result, attribute).result
        name, sources = inner.name, list(inner.operands)
        negate = False
        if name in ("arith.addf", "arith.subf"):
            for position, source in enumerate(sources):
                producer = defining_op(source)
                if producer is not None and producer in products:
                    negate = name == "arith.subf"
                    name = "math.fma" if producer.name == "arith.mulf" else producer.name
                    sources = [*producer.operands, sources[1 - position]]
                    break
        operands = [self._value(v, values) for v in sources]
        if negate:
            operands[2] = arith.negf(operands[2])
        if name in ("arith.extf", "arith.truncf"):
            if name == "arith.truncf" and build.is_float8(inner.results[0].type):
                return self.to_register(arith.truncf(build.like(operands[0].type, inner.results[0].type), operands[0]))
            source = build.element_of(operands[0].type)
            if source == result:
                return operands[0]
            name = "arith.extf" if ir.FloatType(source).width < ir.FloatType(result).width else "arith.truncf"
        if name in ORDERED and sources[0] != sources[1] and any(v in self.from_numbers for v in sources):
            return self._extremum(name, operands, number=0 if sources[0] in self.from_numbers else 1)
        if any(_is_vector(v) for v in operands):
            operands = [self.broadcast(v) for v in operands]
            result = ir.VectorType.get([self.lanes], result)
        if name in PAIRED:
            return PAIRED[name](*operands)
        if name == "pair.widen":
            return pairs.widen(operands[0], inner.attributes["element"].value)
        attributes = (
            {} if name == "math.fma" and name != inner.name else {a: inner.attributes[a] for a in inner.attributes}
        )
        return ir.Operation.create(name, results=[result], operands=operands, attributes=attributes).result

    def _extremum(self, name: str, operands: list[ir.Value], number: int) -> ir.Value:
        """The larger or smaller of a number and x; the number if x is NaN. One instruction; maxnumf takes three."""
        if any(_is_vector(v) for v in operands):
            operands = [self.broadcast(v) for v in operands]
        x, best = operands[1 - number], operands[number]
        return arith.select(arith.cmpf(ORDERED[name], x, best), x, best)

    def broadcast(self, value: ir.Value) -> ir.Value:
        """A vector of the lanes, from a scalar or a vector."""
        if _is_vector(value):
            return value
        return vector.BroadcastOp(ir.VectorType.get([self.lanes], value.type), value).result

    def to_register(self, value: ir.Value) -> ir.Value:
        return self.from_memory(value, value.type)

    def from_memory(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """A loaded scalar or vector in its register type: f32 for narrow floats, i1 for bytes that stand for i1."""
        found = build.element_of(value.type)
        if build.is_narrow(found):
            return arith.extf(build.like(value.type, ir.F32Type.get()), value)
        if found != element:  # i8 in place of i1
            return arith.cmpi(arith.CmpIPredicate.ne, value, build.constant(value.type, 0))
        return value

    def to_memory(self, value: ir.Value, element: ir.Type) -> ir.Value:
        if build.is_narrow(element):
            return arith.truncf(build.like(value.type, element), value)
        if element == ir.IntegerType.get_signless(1):
            return arith.extui(build.like(value.type, ir.IntegerType.get_signless(8)), value)
        return value


def _is_vector(value: ir.Value) -> bool:
    return isinstance(value.type, ir.VectorType)
