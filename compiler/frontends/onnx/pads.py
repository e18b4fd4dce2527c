"""Pads that cut off, or go round, as slices: the importer's lowering makes invalid IR of these, or never ends.

  y = Pad<mode = "wrap">(x, [0, 1, 0, -2])      x: [4, 6]
becomes
  x0 = Slice(x, …, ends = [-2], axes = [1]);  last = Slice(x0, starts = [-1], …, axes = [1])
  y = Concat<axis = 1>(last, x0)

What is cut off is cut off first.
"""

from onnx import ModelProto, NodeProto, helper, numpy_helper

from .rewriting import Move, Scope, chain, numbers, rewrite_all, sizes_of, slice_of

END = 2**63 - 1  # of a slice, past any size


def as_slices(model: ModelProto) -> bool:
    """Rewrites these pads, in place, also in the bodies of nodes; whether there was one."""
    return rewrite_all(model.graph, _slices)


def _slices(node: NodeProto, scope: Scope) -> list[NodeProto] | None:
    """The nodes that compute the same; None where none is needed, or too little is known."""
    if node.op_type != "Pad" or node.domain:
        return None
    mode = next((a.s.decode() for a in node.attribute if a.name == "mode"), "constant")
    sizes = sizes_of(scope.types.get(node.input[0]))
    amounts = None if sizes is None else _amounts(node, scope, len(sizes))
    if sizes is None or amounts is None or (mode != "wrap" and all(n >= 0 for pair in amounts for n in pair)):
        return None
    cut = {d: (-min(b, 0), min(e, 0) or END, 1) for d, (b, e) in enumerate(amounts) if min(b, e) < 0}
    added = [(max(b, 0), max(e, 0)) for b, e in amounts]
    moves = [slice_of(cut)] if cut else []
    if mode != "wrap" and any(map(any, added)):
        moves.append(_pad(node, added))
    for d, (b, e) in enumerate(added if mode == "wrap" else ()):
        size = sizes[d]
        left = 0 if size is None else size + sum(min(n, 0) for n in amounts[d])
        if b + e and left <= 0:
            return None
        if b + e:
            moves.append(_around(d, left, b, e))
    moves = moves or [lambda source, target: [helper.make_node("Identity", [source], [target])]]
    made = chain(moves, node.input[0], node.output[0])
    for new in made:
        new.name = node.name or node.output[0]
    return made


def _amounts(node: NodeProto, scope: Scope, rank: int) -> list[tuple[int, int]] | None:
    """How much is added before and after each dimension, if that is known."""
    given = [name for name in (*node.input[1:2], *node.input[3:4]) if name]
    if not given or any(name not in scope.constants for name in given):
        return None
    amounts, *axes = [numpy_helper.to_array(scope.constants[name]).tolist() for name in given]
    places = [axis % rank for axis in axes[0]] if axes else [*range(rank)]
    found = dict(zip(places, zip(amounts[: len(places)], amounts[len(places) :], strict=True), strict=True))
    return [found.get(d, (0, 0)) for d in range(rank)]


def _pad(node: NodeProto, amounts: list[tuple[int, int]]) -> Move:
    """`node` with these amounts, of all dimensions."""

    def move(source: str, target: str) -> list[NodeProto]:
        lists = numbers(f"{target}, amounts", [n for side in zip(*amounts, strict=True) for n in side])
        pad = helper.make_node("Pad", [source, lists.output[0], *node.input[2:3]], [target])
        pad.attribute.extend(node.attribute)
        return [lists, pad]

    return move


def _around(d: int, size: int, before: int, after: int) -> Move:
    """What is `size` long in dimension `d`, repeated before and after it."""

    def move(source: str, target: str) -> list[NodeProto]:
        parts = [source] * (1 + before // size + after // size)
        made: list[NodeProto] = []
        if before % size:
            parts.insert(0, f"{target}, before")
            made += slice_of({d: (-(before % size), END, 1)})(source, parts[0])
        if after % size:
            parts.append(f"{target}, after")
            made += slice_of({d: (0, after % size, 1)})(source, parts[-1])
        return [*made, helper.make_node("Concat", parts, [target], axis=d)]

    return move
