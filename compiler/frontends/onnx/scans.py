"""Scans as the importer knows them, forwards and along the first axis: it does not look at what says otherwise.

  s, y = Scan<num_scan_inputs = 1, scan_input_axes = [2], scan_output_directions = [1], …>(s0, x)
becomes
  x0 = Transpose<perm = [2, 0, 1]>(x);  s, y0 = Scan<num_scan_inputs = 1, …>(s0, x0);  y = Slice(y0, …, steps = [-1])
"""

from collections.abc import Sequence

from onnx import ModelProto, NodeProto, helper

from ...diagnostics import user_error
from .rewriting import Move, Scope, Types, chain, rewrite_all, sizes_of, slice_of

WAYS = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")
TURN = slice_of({0: (-1, -(2**63) + 1, -1)})  # the first dimension backwards: from the last to what is before any


def forwards(model: ModelProto) -> bool:
    """Rewrites scans in other ways, in place, also in the bodies of nodes; whether there was one."""
    return rewrite_all(model.graph, _plain)


def _plain(node: NodeProto, scope: Scope) -> list[NodeProto] | None:
    """The nodes that compute the same; None where the scan is plain."""
    if node.op_type != "Scan" or node.domain or not any(any(a.ints) for a in node.attribute):
        return None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    in_axes, in_directions, out_axes, out_directions = (attributes.pop(name, []) for name in WAYS)
    scan = helper.make_node("Scan", list(node.input), list(node.output), node.name, **attributes)
    states, name = len(node.input) - attributes["num_scan_inputs"], node.output[-1]
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    for i, source in enumerate(node.input[states:]):
        moves = [_transpose(order) for order in _orders(node, source, in_axes[i : i + 1], scope.types)]
        moves += [TURN] * any(in_directions[i : i + 1])
        scan.input[states + i] = f"{name}, scanned {i}" if moves else source
        before += chain(moves, source, f"{name}, scanned {i}")
    for i, target in enumerate(node.output[states:]):
        orders = _orders(node, target, out_axes[i : i + 1], scope.types)
        moves = [TURN] * any(out_directions[i : i + 1])
        moves += [_transpose([order.index(d) for d in range(len(order))]) for order in orders]
        if moves and target:
            scan.output[states + i] = f"{target}, as scanned"
            after += chain(moves, f"{target}, as scanned", target)
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


def _transpose(order: Sequence[int]) -> Move:
    return lambda source, target: [helper.make_node("Transpose", [source], [target], perm=order)]
