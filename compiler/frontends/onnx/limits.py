"""What the importer's lowering gets wrong, or ends the process on: refused, with the node's name."""

from collections.abc import Callable, Mapping
from typing import Any

from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from ....dialects.diagnostic import DiagnosedError
from ...diagnostics import user_error
from .rewriting import Scope, Types, scopes_of

Attributes = dict[str, Any]
UNSIGNED = (TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64)
UNKNOWN_TYPES = {TensorProto.UINT16: "uint16", TensorProto.UINT64: "uint64"}  # the lowering aborts on most operators
TYPE_NAMES = [*TensorProto.DataType.keys()]  # onnx knows more of them with each version
SMALL_TYPES = {
    TensorProto.DataType.Value(name): name.lower()
    for name in ("UINT2", "INT2", "UINT4", "INT4", "FLOAT4E2M1")
    if name in TYPE_NAMES
}  # on all operators
HANDS_ON = ("Identity", "Where")

# By operator: whether a node is wrong, of its attributes and what is known of its inputs; in what respect.
WRONG: Mapping[str, tuple[Callable[[Attributes, "Inputs"], bool], str]] = {
    "Abs": (lambda a, of: of.kind(0) in UNSIGNED, " of unsigned integers"),
    "Clip": (lambda a, of: of.kind(0) in UNSIGNED, " of unsigned integers"),
    "ConvInteger": (lambda a, of: of.is_unsigned_without_zero_point(), " of unsigned integers without a zero point"),
    "Det": (lambda a, of: True, ""),  # it divides by a pivot of 0
    "Div": (lambda a, of: of.kind(0) in UNSIGNED, " of unsigned integers"),
    "Einsum": (lambda a, of: not any(map(str.isalpha, a["equation"].decode())), " of scalars"),
    "GridSample": (lambda a, of: a.get("mode") == b"nearest", " with mode 'nearest'"),
    "LSTM": (lambda a, of: of.has(7), " with peepholes"),
    "MatMulInteger": (lambda a, of: of.is_unsigned_without_zero_point(), " of unsigned integers without a zero point"),
    "Mod": (lambda a, of: of.kind(0) in UNSIGNED, " of unsigned integers"),
    "Pad": (lambda a, of: a.get("mode") == b"wrap", " with mode 'wrap' where sizes are not known"),
    "QLinearMatMul": (lambda a, of: max(of.rank(0), of.rank(3)) > 2, " of more than matrices"),
    "Resize": (
        lambda a, of: a.get("coordinate_transformation_mode") == b"align_corners" and of.has(2) and not of.is_whole(2),
        " with align_corners by scales that are not whole",
    ),
    "SoftmaxCrossEntropyLoss": (lambda a, of: of.has(2), " with weights"),
    "Squeeze": (lambda a, of: not of.has(1) and not of.is_rank_known(), " without axes where sizes are not known"),
    "SpaceToDepth": (lambda a, of: a.get("mode") == b"CRD", " with mode 'CRD'"),
    "Unique": (lambda a, of: True, ": how large the result is depends on the data"),
}


class Inputs:
    """What is known of the inputs of a node."""

    def __init__(self, node: NodeProto, types: Types, constants: Mapping[str, TensorProto]):
        self.node, self.types, self.constants = node, types, constants

    def has(self, i: int) -> bool:
        return i < len(self.node.input) and bool(self.node.input[i])

    def kind(self, i: int) -> int:
        return self.types[self.node.input[i]].elem_type if self.node.input[i] in self.types else 0

    def rank(self, i: int) -> int:
        return len(self.types[self.node.input[i]].shape.dim) if self.node.input[i] in self.types else 0

    def is_rank_known(self) -> bool:
        """Whether that of the result is."""
        name = self.node.output[0]
        return name in self.types and self.types[name].HasField("shape")

    def is_unsigned_without_zero_point(self) -> bool:
        """Whether one of two factors is; inputs 2 and 3 are their zero points."""
        return any(self.kind(i) in UNSIGNED and not self.has(2 + i) for i in range(2))

    def is_whole(self, i: int) -> bool:
        """Whether the numbers in it are known, and whole."""
        constant = self.constants.get(self.node.input[i])
        if constant is None:
            return False
        numbers = numpy_helper.to_array(constant)
        return bool((numbers == numbers.round()).all())


def check(graph: GraphProto, way_out: str) -> None:
    """A user's error for the first node that would be computed wrong."""
    for scope in scopes_of(graph):
        for node in scope.graph.node:
            if not node.domain:
                _check(node, scope, way_out)


def _check(node: NodeProto, scope: Scope, way_out: str) -> None:
    if node.op_type in WRONG:
        is_wrong, respect = WRONG[node.op_type]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if is_wrong(attributes, Inputs(node, scope.types, scope.constants)):
            raise _refusal(node, respect, way_out)
    kinds = [scope.types[name].elem_type for name in (*node.input, *node.output) if name in scope.types]
    unknown = [UNKNOWN_TYPES[kind] for kind in kinds if kind in UNKNOWN_TYPES]
    if node.op_type in HANDS_ON:
        unknown = []
    unknown += [SMALL_TYPES[kind] for kind in kinds if kind in SMALL_TYPES]
    if unknown:
        raise _refusal(node, f" of {unknown[0]}", way_out)


def _refusal(node: NodeProto, respect: str, way_out: str) -> DiagnosedError:
    where = f"operator {node.op_type} of ONNX (node '{node.name or node.output[0]}')"
    return user_error(f"{where} has no lowering to linalg{respect}; {way_out}")
