"""Shapes of ONNX of which some sizes are known: computed as far as they are, and written such that one sees it.

  x : [b, s, 32];  s = Shape(x);  n = Concat(Gather(s, 0), Gather(s, 1), 4, 8);  y = Reshape(x, n)
becomes
  y = Reshape(x, [0, 0, 4, 8])
and
  n = Concat(-1, 1, Gather(s, 1), -1);  m = Where(Equal(n, -1), 1, n);  y = Expand(x, m)
becomes
  y = Expand(x, Concat(1, 1, Shape<start=1, end=2>(x), 1))

Sizes that are open have names in the types of the model's inputs, by which equal ones are known. Where a size is lost,
the lowering takes it to be that of any other one that it meets, also where it is 1 and is broadcast.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx.shape_inference
from onnx import NodeProto, OperatorSetIdProto, TypeProto, helper, numpy_helper

from .rewriting import Types, numbers

UNKNOWN = 2**62  # and above: numbers that stand for the sizes that are not known
LONGEST = 16  # of a list of sizes
MOVES_FIRST = ("Cast", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze")  # elements of the first input
MOVES = (*MOVES_FIRST, "Concat", "Where")
TAKES_SHAPE = ("Expand", "Reshape")  # as the second input
PARTS, KNOWN = " in parts", " in numbers"  # names of the lists that are made
WITH_BOUNDS = 15  # the first version in which Shape has start and end

Evaluate = Callable[[NodeProto, Mapping[str, np.ndarray]], list[np.ndarray] | None]


class Sizes:
    """Lists of sizes in a graph, whose nodes are shown one after the other."""

    def __init__(self, inputs: Sequence[str], types: Types, opsets: Sequence[OperatorSetIdProto]):
        self.types, self.opsets = types, list(opsets)
        self.opset = next((o.version for o in opsets if o.domain in ("", "ai.onnx")), 1)
        self.producers: dict[str, NodeProto] = {}
        self.lists: dict[str, np.ndarray] = {}
        self.symbols: list[tuple[str, int]] = []  # where the sizes that are not known are found
        self._numbers: dict[tuple[str, ...], int] = {}
        self.names = {size.dim_param for name in inputs for size in types[name].shape.dim} - {""}
        for name in inputs:
            self.of(name)

    def of(self, name: str) -> np.ndarray | None:
        """The sizes of a value, if its rank is known."""
        return self._sizes(self.types[name], name) if name in self.types else None

    def _sizes(self, kind: TypeProto.Tensor, name: str = "") -> np.ndarray | None:
        """The sizes of a type; those that are not known are −1 where the type is that of no value, and has no name."""
        if not kind.HasField("shape"):
            return None
        sizes = []
        for d, size in enumerate(kind.shape.dim):
            if size.HasField("dim_value"):
                sizes.append(size.dim_value)
                continue
            key = (size.dim_param,) if size.dim_param in self.names else (name, str(d))
            if key not in self._numbers:
                if not name:
                    sizes.append(-1)
                    continue
                self._numbers[key] = len(self.symbols)
                self.symbols.append((name, d))
            sizes.append(UNKNOWN + self._numbers[key])
        return np.array(sizes, np.int64)

    def value(self, node: NodeProto, constants: Mapping[str, np.ndarray], evaluate: Evaluate) -> np.ndarray | None:
        """The result of a node, if it follows from what is known of lists of sizes; else what is, is remembered."""
        self.producers.update(dict.fromkeys(node.output, node))
        if node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            return None
        found = None
        if node.op_type == "Shape":
            sizes = self.of(node.input[0])
            if sizes is not None:
                bounds = {a.name: a.i for a in node.attribute}
                found = sizes[bounds.get("start", 0) : bounds.get("end", len(sizes))]
        elif any(name in self.lists for name in node.input):
            known = {name: self.lists.get(name, constants.get(name)) for name in node.input if name}
            values = [v for v in known.values() if v is not None]
            if len(values) == len(known) and all(v.size <= LONGEST for v in values):
                found = self._computed(node, dict(zip(known, values, strict=True)), evaluate)
        if found is None or found.dtype not in (np.int64, np.bool_):
            return None
        if found.dtype == np.bool_ or (found < UNKNOWN).all():
            return found
        self.lists[node.output[0]] = found
        return None

    def _computed(self, node: NodeProto, known: dict[str, np.ndarray], evaluate: Evaluate) -> np.ndarray | None:
        places = [i for i, name in enumerate(node.input) if name in self.lists]
        if node.op_type == "Equal":
            return _equal(*(known[name] for name in node.input))
        moved = {"Concat": range(len(node.input)), "Where": (1, 2)}.get(node.op_type, (0,))
        if node.op_type not in MOVES or any(i not in moved for i in places):
            return None
        results = evaluate(node, known)
        return None if results is None else results[0]

    def simplified(self, node: NodeProto) -> tuple[list[NodeProto], NodeProto]:
        """Nodes that make the shape that `node` takes from its parts, and `node` with that shape."""
        sizes = self.lists.get(node.input[1]) if node.op_type in TAKES_SHAPE and not node.domain else None
        if sizes is None:
            return [], node
        if node.op_type == "Reshape" and (transposed := self._transposed(node, sizes)) is not None:
            return [], transposed
        own = self.of(node.input[0])
        if node.op_type == "Expand" and own is not None and np.array_equal(own, sizes):
            return [], helper.make_node("Identity", [node.input[0]], list(node.output), node.name)
        copy, whole = NodeProto(), sizes
        copy.CopyFrom(node)
        if node.op_type == "Reshape" and (sizes != 0).all():
            kept = np.array([own is not None and d < len(own) and own[d] == s for d, s in enumerate(sizes)])
            sizes = np.where(kept & (sizes >= UNKNOWN), 0, sizes)  # 0: as the size in this place was
            others = np.flatnonzero(sizes >= UNKNOWN)
            if len(others) == 1 and (sizes != -1).all():
                sizes[others] = -1
            attributes = [a for a in copy.attribute if a.name != "allowzero"]
            del copy.attribute[:]
            copy.attribute.extend(attributes)
        if (sizes < UNKNOWN).all():
            copy.input[1] = f"{node.output[0]}{KNOWN}"
            self.lists[copy.input[1]] = whole
            return [numbers(copy.input[1], sizes)], copy
        if node.input[1].endswith(PARTS):
            return [], node
        copy.input[1] = f"{node.output[0]}{PARTS}"
        return self._made(copy.input[1], sizes), copy

    def learn(self, node: NodeProto, constants: Mapping[str, np.ndarray]) -> bool:
        """Tells the types of a node's results what is known of their sizes; whether that is news."""
        if node.domain or all(self._is_known(name) for name in node.output):
            return False
        found = {name: self._sizes(kind.tensor_type) for name, kind in self._inferred(node, constants).items()}
        sizes = self._result(node, constants)
        changed = sizes is not None and self._tell(node.output[0], sizes)
        for name, sizes in found.items():
            changed |= sizes is not None and self._tell(name, sizes)
        return changed

    def _is_known(self, name: str) -> bool:
        kind = self.types.get(name)
        if kind is None or not kind.HasField("shape"):
            return kind is None
        return all(d.HasField("dim_value") or d.dim_param in self.names for d in kind.shape.dim)

    def _inferred(self, node: NodeProto, constants: Mapping[str, np.ndarray]) -> Mapping[str, TypeProto]:
        """The types that follow from those of its inputs, by the operator's schema."""
        inputs = {name: TypeProto(tensor_type=self.types[name]) for name in node.input if name in self.types}
        if any(name and name not in inputs for name in node.input):
            return {}
        data = {
            name: numpy_helper.from_array(constants[name], name)
            for name in node.input
            if name in constants and constants[name].size <= LONGEST
        }
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
            return onnx.shape_inference.infer_node_outputs(schema, node, inputs, data, opset_imports=self.opsets)
        except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, RuntimeError):
            return {}

    def _tell(self, name: str, sizes: np.ndarray) -> bool:
        kind = self.types.get(name)
        if kind is None:
            return False
        if not kind.HasField("shape"):
            kind.shape.SetInParent()
            for _ in sizes:
                kind.shape.dim.add()
        changed = False
        for dim, size in zip(kind.shape.dim, map(int, sizes), strict=False):
            if dim.HasField("dim_value") or size < 0:
                continue
            known = self.name(size) if size >= UNKNOWN else ""
            if size < UNKNOWN:
                dim.dim_value = size
            elif known and dim.dim_param != known:
                dim.dim_param = known
            else:
                continue
            changed = True
        return changed

    def name(self, size: int) -> str:
        """The name that an input of the model gives a size that is not known; empty if none does."""
        source, d = self.symbols[size - UNKNOWN]
        name = self.types[source].shape.dim[d].dim_param
        return name if name in self.names else ""

    def _result(self, node: NodeProto, constants: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """The sizes of a node's result that follow from a list of sizes, or are those of an input; −1 for others."""
        if node.op_type == "ConstantOfShape":
            return self.lists.get(node.input[0])
        sizes = self.lists.get(node.input[1]) if node.op_type in TAKES_SHAPE else None
        own = self.of(node.input[0]) if sizes is not None else None
        if node.op_type == "Reshape" and sizes is not None:
            known: list[int] = [] if own is None else own[: len(sizes)].tolist()
            copied = np.array([*known, *[-1] * (len(sizes) - len(known))])
            return np.where(sizes == 0, copied, sizes)
        if node.op_type == "Expand" and sizes is not None:
            if own is None or len(own) > len(sizes):
                return None
            own = np.concatenate([np.ones(len(sizes) - len(own), np.int64), own])
            return np.where(sizes == 1, own, np.where((own == 1) | (own == sizes), sizes, -1))
        if node.op_type == "Range":
            start, limit, step = (self.lists.get(name, constants.get(name)) for name in node.input)
            if limit is not None and start is not None and step is not None and start == 0 and step == 1:
                return limit.reshape(1)
        axes = constants.get(node.input[3]) if node.op_type == "Slice" and len(node.input) > 3 else None
        own = self.of(node.input[0]) if axes is not None else None
        if own is not None:  # of bounds that are computed onnx infers the rank alone
            own[axes] = -1
        return own

    def _transposed(self, node: NodeProto, sizes: np.ndarray) -> NodeProto | None:
        """[…, a, b] with its last two transposed, where `node` makes […, b, a] of the transpose of [-1, a, b]."""
        transpose = self.producers.get(node.input[0])
        merge = self.producers.get(transpose.input[0]) if transpose is not None else None
        if transpose is None or merge is None or transpose.op_type != "Transpose" or merge.op_type != "Reshape":
            return None
        perm = next((list(a.ints) for a in transpose.attribute if a.name == "perm"), [])
        own, merged = self.of(merge.input[0]), self.lists.get(merge.input[1])
        if perm != [0, 2, 1] or own is None or merged is None or len(own) != len(sizes):
            return None
        *outer, a, b = own
        if list(merged) != [-1, a, b] or list(sizes) != [*outer, b, a] or 0 in own:
            return None
        perm = [*range(len(outer)), len(outer) + 1, len(outer)]
        return helper.make_node("Transpose", [merge.input[0]], list(node.output), node.name, perm=perm)

    def _made(self, name: str, sizes: np.ndarray) -> list[NodeProto]:
        """Nodes that make the list `sizes`."""
        nodes: list[NodeProto] = []
        parts: list[str] = []
        known: list[int] = []

        def flush() -> None:
            if known:
                parts.append(f"{name}, {len(parts)}")
                nodes.append(numbers(parts[-1], known))
                known.clear()

        for size in map(int, sizes):
            if size < UNKNOWN:
                known.append(size)
                continue
            flush()
            parts.append(f"{name}, {len(parts)}")
            nodes += self._size(parts[-1], *self.symbols[size - UNKNOWN])
        flush()
        return [*nodes, helper.make_node("Concat", parts, [name], axis=0)]

    def _size(self, name: str, source: str, d: int) -> list[NodeProto]:
        if self.opset >= WITH_BOUNDS:
            return [helper.make_node("Shape", [source], [name], start=d, end=d + 1)]
        bounds = [numbers(f"{name} at {i}", [i]) for i in (d, d + 1)]
        whole = helper.make_node("Shape", [source], [f"{name} of"])
        return [*bounds, whole, helper.make_node("Slice", [f"{name} of", *(b.output[0] for b in bounds)], [name])]


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Which elements are equal, if that is known of all: sizes are not negative."""
    a, b = np.broadcast_arrays(a, b)
    differs = (a < 0) | (b < 0) | ((a < UNKNOWN) & (b < UNKNOWN))
    return a == b if (differs | (a == b)).all() else None
