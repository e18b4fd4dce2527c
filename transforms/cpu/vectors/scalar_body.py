"""Evaluates the scalar body of a structured op on scalars and vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ...graph import dependents
from ...rewriting import defining_op
from .. import pairs
from ..marks import ROUNDED_FIRST
from ..pair_powers import PAIRED
from ..structured import Structured

Point = tuple[int, ...]
FUSED = {("arith.addf", 0), ("arith.addf", 1), ("arith.subf", 0)}  # users of a product, and which operand it is
EXPONENTIALS = ("math.exp", "math.exp2")
ORDERED = {"arith.maxnumf": arith.CmpFPredicate.OGT, "arith.minnumf": arith.CmpFPredicate.OLT}


def register_type(kind: ir.Type) -> ir.Type:
    """What an element is while it is computed with: f32 for narrow floats."""
    return build.compute_type(kind)


@dataclass(frozen=True)
class Step:
    """What becomes of an op of the body at each point: known once, as reading IR takes most of the time.

    `sources`: values of the body that it works on; `result`: the type of a scalar result in registers. `negates`: the
    third one is negated first. `is_ordered`: an extremum of a number and one that may be NaN.
    """

    inner: ir.Operation
    value: ir.Value
    name: str
    sources: tuple[ir.Value, ...]
    result: ir.Type
    attributes: dict[str, ir.Attribute]
    negates: bool = False
    is_ordered: bool = False


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
        self._arguments, self._yielded = list(op.body.arguments), list(op.end.operands)
        self._vectors: dict[ir.Type, ir.VectorType] = {}

    def evaluate(
        self,
        operands: dict[int, ir.Value],
        point: Point,
        index: Callable[[int, Point], ir.Value],
        compared: Callable[[ir.Operation, Point], ir.Value | None] = lambda inner, point: None,
    ) -> list[ir.Value]:
        """The values that the body yields, given its arguments' values by number.

        `index` tells linalg.index; `compared` the result of a comparison, where it takes less than what it compares."""
        values = {self._arguments[number]: value for number, value in operands.items()}
        for step in self._steps():
            if step.name == "linalg.index":
                values[step.value] = index(step.attributes["dim"].value, point)
            else:
                known = compared(step.inner, point) if step.name == "arith.cmpi" else None
                values[step.value] = self._op(step, values) if known is None else known
        return [self._value(v, values) for v in self._yielded]

    def _steps(self) -> list[Step]:
        """The ops of the body but those products that become a part of a multiply-add."""
        if not hasattr(self, "_planned"):
            products = self._fused_products()
            self._planned = [self._step(inner, products) for inner in self.op.body_ops if inner not in products]
        return self._planned

    def _fused_products(self) -> list[ir.Operation]:
        """The products whose one use is an arith.addf, or from which an arith.subf subtracts: both become an fma.

        Not where an exponential is taken of the difference: what is subtracted may be the maximum that other loops
        found of such products, which were rounded. Then the largest less itself is 0, not what its rounding left.
        """
        products: list[ir.Operation] = []
        for inner in self.op.body_ops:
            if inner.name in ("arith.mulf", "pair.product") and ROUNDED_FIRST not in inner.attributes:
                uses = list(inner.results[0].uses)
                user = uses[0].owner.operation if len(uses) == 1 else None
                if user is not None and (user.name, uses[0].operand_number) in FUSED:
                    other = user.operands[1 - uses[0].operand_number]
                    if user.name == "arith.subf" and any(o.name in EXPONENTIALS for o in dependents(user)):
                        continue
                    if not any(other == p.results[0] for p in products):  # a·b + c·d: fuse one
                        products.append(inner)
        return products

    def _step(self, inner: ir.Operation, products: list[ir.Operation]) -> Step:
        value, name, sources = inner.results[0], inner.name, list(inner.operands)
        result, negates = register_type(value.type), False
        attributes = {a: inner.attributes[a] for a in inner.attributes}
        if name == "arith.constant" and build.is_narrow(value.type):
            attributes["value"] = ir.FloatAttr.get(result, attributes["value"].value)
        if name in ("arith.addf", "arith.subf"):
            for position, source in enumerate(sources):
                producer = defining_op(source)
                if producer is not None and producer in products:
                    negates = name == "arith.subf"
                    name = "math.fma" if producer.name == "arith.mulf" else producer.name
                    sources = [*producer.operands, sources[1 - position]]
                    attributes = {} if name == "math.fma" else attributes
                    break
        is_ordered = name in ORDERED and sources[0] != sources[1] and any(v in self.from_numbers for v in sources)
        return Step(inner, value, name, tuple(sources), result, attributes, negates, is_ordered)

    def _value(self, value: ir.Value, values: dict[ir.Value, ir.Value]) -> ir.Value:
        """The value that stands for `value`; from outside of the body, itself in its register type."""
        if value not in values:
            values[value] = self.to_register(value)
        return values[value]

    def _op(self, step: Step, values: dict[ir.Value, ir.Value]) -> ir.Value:
        name, result = step.name, step.result
        if name == "arith.constant":
            return arith.ConstantOp(result, step.attributes["value"]).result
        operands = [self._value(v, values) for v in step.sources]
        if step.negates:
            operands[2] = arith.negf(operands[2])
        if name in ("arith.extf", "arith.truncf"):
            if name == "arith.truncf" and build.is_float8(step.value.type):
                return self.to_register(arith.truncf(build.like(operands[0].type, step.value.type), operands[0]))
            source = build.element_of(operands[0].type)
            if source == result:
                return operands[0]
            name = "arith.extf" if ir.FloatType(source).width < ir.FloatType(result).width else "arith.truncf"
        if step.is_ordered:
            return self._extremum(name, operands, number=0 if step.sources[0] in self.from_numbers else 1)
        are_vectors = [_is_vector(v) for v in operands]
        if any(are_vectors):
            operands = [v if is_one else self._spread(v) for v, is_one in zip(operands, are_vectors, strict=True)]
            result = self._vector_of(result)
        if name in PAIRED:
            return PAIRED[name](*operands)
        if name == "pair.widen":
            return pairs.widen(operands[0], step.attributes["element"].value)
        return ir.Operation.create(name, results=[result], operands=operands, attributes=step.attributes).result

    def _extremum(self, name: str, operands: list[ir.Value], number: int) -> ir.Value:
        """The larger or smaller of a number and x; the number if x is NaN. One instruction; maxnumf takes three."""
        if any(_is_vector(v) for v in operands):
            operands = [self.broadcast(v) for v in operands]
        x, best = operands[1 - number], operands[number]
        return arith.select(arith.cmpf(ORDERED[name], x, best), x, best)

    def broadcast(self, value: ir.Value) -> ir.Value:
        """A vector of the lanes, from a scalar or a vector."""
        return value if _is_vector(value) else self._spread(value)

    def _spread(self, scalar: ir.Value) -> ir.Value:
        return build.once("vector.broadcast", self._vector_of(scalar.type), scalar)

    def _vector_of(self, element: ir.Type) -> ir.VectorType:
        if element not in self._vectors:
            self._vectors[element] = ir.VectorType.get([self.lanes], element)
        return self._vectors[element]

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
