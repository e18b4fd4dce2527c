"""Scans as the importer knows them, forwards and along the first axis: it does not look at what says otherwise.

  s, y = Scan<num_scan_inputs = 1, scan_input_axes = [2], scan_output_directions = [1], …>(s0, x)
becomes
  x0 = Transpose<perm = [2, 0, 1]>(x);  s, y0 = Scan<num_scan_inputs = 1, …>(s0, x0);  y = Slice(y0, …, steps = [-1])
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from onnx import ModelProto, NodeProto, helper

from ..diagnostics import user_error
from .onnx_rewriting import Types, graphs_of, numbers, rewrite, sizes_of

WAYS = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")
BEFORE_FIRST = -(2**63) + 1  # where a slice backwards ends

Move: TypeAlias = Callable[[str, str], list[NodeProto]]  # the nodes that make one value of another


def forwards(model: ModelProto) -> bool:
    """Rewrites scans in other ways, in place, also in the bodies of nodes; whether there was one."""
    found = [rewrite(graph, _writer(types)) for graph, types in graphs_of(model.graph)]
    return any(found)


def _writer(types: Types) -> Callable[[NodeProto], list[NodeProto] | None]:
    def plain(node: NodeProto) -> list[NodeProto] | None:
        is_one = node.op_type == "Scan" and not node.domain and any(any(a.ints) for a in node.attribute)
        return _plain(node, types) if is_one else None

    return plain


def _plain(node: NodeProto, types: Types) -> list[NodeProto]:
    """The nodes that compute the same."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    in_axes, in_directions, out_axes, out_directions = (attributes.pop(name, []) for name in WAYS)
    scan = helper.make_node("Scan", list(node.input), list(node.output), node.name, **attributes)
    states, name = len(node.input) - attributes["num_scan_inputs"], node.output[-1]
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    for i, source in enumerate(node.input[states:]):
        moves = [_transpose(order) for order in _orders(node, source, in_axes[i : i + 1], types)]
        moves += [_turn] * any(in_directions[i : i + 1])
        scan.input[states + i] = f"{name}, scanned {i}" if moves else source
        before += _chain(moves, source, f"{name}, scanned {i}")
    for i, target in enumerate(node.output[states:]):
        orders = _orders(node, target, out_axes[i : i + 1], types)
        moves = [_turn] * any(out_directions[i : i + 1])
        moves += [_transpose([order.index(d) for d in range(len(order))]) for order in orders]
        if moves and target:
            scan.output[states + i] = f"{target}, as scanned"
            after += _chain(moves, f"{target}, as scanned", target)
    for made in (*before, *after):
        made.name = node.name or node.output[-1]
    return [*before, scan, *after]


def _orders(node: NodeProto, name: str, axes: Sequence[int], types: Types) -> list[list[int]]:
    """The order of dimensions in which those of `axes`, one or none, come first; none where they do."""
    sizes = sizes_of(types.get(name))
    if any(axes) and name and sizes is None:
        where = f"operator Scan of ONNX (node '{node.name or node.output[-1]}')"
        raise user_error(
            f"{where} has no lowering to linalg where the rank of '{name}' is not known; declare its shape"
        )
    rank = len(sizes or ())
    first = [axis % rank for axis in axes if axis and rank]
    return [[axis, *(d for d in range(rank) if d != axis)] for axis in first]


def _chain(moves: Sequence[Move], source: str, target: str) -> list[NodeProto]:
    names = [source, *(f"{target}, move {i}" for i in range(1, len(moves))), target]
    return [node for move, a, b in zip(moves, names, names[1:], strict=False) for node in move(a, b)]


def _transpose(order: Sequence[int]) -> Move:
    return lambda source, target: [helper.make_node("Transpose", [source], [target], perm=order)]


def _turn(source: str, target: str) -> list[NodeProto]:
    """The first dimension backwards."""
    bounds = {"last": -1, "end": BEFORE_FIRST, "axis": 0, "step": -1}
    made = [numbers(f"{target}, {name}", [number]) for name, number in bounds.items()]
    return [*made, helper.make_node("Slice", [source, *(n.output[0] for n in made)], [target])]
