"""Weights that onnxruntime's operators hold quantized in blocks, as floats.

    Y = com.microsoft.MatMulNBits<K = 64, N = 24, bits = 4, block_size = 32>(X, B, S, Z)     B: uint8 [24, 2, 16]
  becomes
    Y = MatMul(X, W)                                                                         W: float [64, 24]

A code of `bits` bits stands for (code − zero point)·scale, with one of each for a block of codes. Codes are packed into
bytes, the lowest bits first. As floats the weights take 8 times the memory of codes of 4 bits, and no time in a call.
"""

import math
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ...diagnostics import user_error

DOMAIN = "com.microsoft"
LARGEST = 2**31 - 1  # bytes of a message of protobuf


def as_floats(model: ModelProto) -> None:
    """Replaces these operators in place. A user's error where the floats are too many, or weights are no constants."""
    graph = model.graph
    constants = {t.name: t for t in graph.initializer}
    for node in graph.node:
        value = next((a.t for a in node.attribute if node.op_type == "Constant" and a.name == "value"), None)
        if value is not None:
            constants[node.output[0]] = value
    made: dict[tuple, str] = {}
    nodes: list[NodeProto] = []
    for node in graph.node:
        write = _WRITERS.get(node.op_type) if node.domain == DOMAIN else None
        nodes += [node] if write is None else write(node, _Weights(graph, node, constants, made))
    if made:
        if model.ByteSize() > LARGEST:
            raise user_error("the weights of the model are more than 2 GiB as floats; split it, by layers say")
        del graph.node[:]
        graph.node.extend(nodes)
        used = {name for n in nodes for name in n.input} | {o.name for o in graph.output}
        kept = [t for t in graph.initializer if t.name in used]
        del graph.initializer[:]
        graph.initializer.extend(kept)


class _Weights:
    """The constants of a node, and its weights as a new one; nodes that share weights share that."""

    def __init__(self, graph: GraphProto, node: NodeProto, constants: dict[str, TensorProto], made: dict[tuple, str]):
        self.graph, self.node, self.constants, self.made = graph, node, constants, made
        self.given: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def has(self, i: int) -> bool:
        return i < len(self.node.input) and bool(self.node.input[i])

    def constant(self, i: int) -> np.ndarray:
        name = self.node.input[i]
        if name not in self.constants:
            raise self.refusal(f"whose input '{name}' is no constant")
        return numpy_helper.to_array(self.constants[name])

    def refusal(self, what: str) -> Exception:
        node = self.node
        where = f"operator {DOMAIN}.{node.op_type} of ONNX (node '{node.name or node.output[0]}')"
        return user_error(f"{where}, {what}, has no lowering to linalg")

    def name(self, value: np.ndarray) -> str:
        """The name of `value`, which hangs on what the node names and nothing else."""
        self.graph.initializer.append(numpy_helper.from_array(value, f"{self.node.input[1]} of {self.node.output[0]}"))
        return self.graph.initializer[-1].name


def _codes(packed: np.ndarray, bits: int) -> np.ndarray:
    """The codes in the bytes along the last dimension, as many as there is room for."""
    if packed.dtype not in (np.uint8, np.int32):  # 4 bits of ONNX's own
        return packed.astype(np.float32)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    data = np.ascontiguousarray(packed).view(np.uint8)
    return ((data[..., None] >> shifts) & (2**bits - 1)).reshape(*data.shape[:-1], -1)


def _matmul(node: NodeProto, of: _Weights) -> list[NodeProto]:
    k, n, block, bits = of.given["K"], of.given["N"], of.given["block_size"], of.given.get("bits", 4)
    if 8 % bits or of.given.get("weight_prepacked"):
        raise of.refusal("in this layout of weights" if 8 % bits == 0 else f"of {bits} bits")
    blocks = math.ceil(k / block)
    key = (node.op_type, *node.input[1:5], k, n, block, bits)
    if key not in of.made:
        codes = _codes(of.constant(1).reshape(n, -1), bits)[:, :k].astype(np.float32)
        scales = of.constant(2).reshape(n, blocks)
        zeros = np.full((n, blocks), 2 ** (bits - 1), np.float32)
        if of.has(3):
            given = of.constant(3)
            zeros = _codes(given.reshape(n, -1), bits)[:, :blocks] if given.dtype == np.uint8 else given
            zeros = zeros.reshape(n, blocks)
        place = of.constant(4)[:k] if of.has(4) else np.arange(k) // block
        weights = (codes - zeros.astype(np.float32)[:, place]) * scales.astype(np.float32)[:, place]
        of.made[key] = of.name(np.ascontiguousarray(weights.T).astype(scales.dtype))
    if not of.has(5):
        return [helper.make_node("MatMul", [node.input[0], of.made[key]], node.output, node.name)]
    product = f"{node.output[0]} without bias"
    return [
        helper.make_node("MatMul", [node.input[0], of.made[key]], [product], node.name),
        helper.make_node("Add", [product, node.input[5]], node.output, node.name),
    ]


def _gather(node: NodeProto, of: _Weights) -> list[NodeProto]:
    block, bits, gathered = of.given.get("block_size", 128), of.given.get("bits", 4), of.given.get("gather_axis", 0)
    key = (node.op_type, node.input[0], *node.input[2:4], block, bits, of.given.get("quantize_axis", 1))
    if key not in of.made:
        data, scales = of.constant(0), of.constant(2)
        axis = of.given.get("quantize_axis", 1) % data.ndim
        is_packed = data.dtype == np.uint8
        if is_packed and (8 % bits or axis != data.ndim - 1):
            raise of.refusal("with blocks along another dimension than the last")
        codes = _codes(data, bits).astype(np.float32)
        zeros = np.full(scales.shape, 2 ** (bits - 1) if is_packed else 0, np.float32)
        if of.has(3):
            zeros = _codes(of.constant(3), bits)[tuple(map(slice, scales.shape))].astype(np.float32)
        rows = np.arange(codes.shape[axis]) // block
        weights = (codes - zeros.take(rows, axis)) * scales.astype(np.float32).take(rows, axis)
        of.made[key] = of.name(weights.astype(scales.dtype))
    return [helper.make_node("Gather", [of.made[key], node.input[1]], node.output, node.name, axis=gathered)]


_WRITERS = {"GatherBlockQuantized": _gather, "MatMulNBits": _matmul}
