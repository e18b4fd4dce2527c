"""Views of torch in terms that the importer, and then tracing, understand.

view and expand where sizes are symbols are written in terms that say which dimensions are merged, split or kept.

A ``view`` of dynamic sizes reaches MLIR as a reshape to computed sizes, which nothing can see through. What torch
knows about the symbols tells the groups of dimensions: [b, t, 32] as [b, t, 4, 8] is one split of the last, and
[b·t, 32] one merge of the first two.

What counts through memory, as_strided, becomes a slice of all elements in a row; products with a vector become ones
with a matrix of one column or row. What has no elements is made anew: on views of it the importer ends the process.
"""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

# Views that a call changes its argument's own shape to, and what else gives its argument another shape in place.
SHAPE_WRITES = {f"{name}_" for name in ("unsqueeze", "squeeze", "transpose", "t", "swapaxes", "swapdims")}
OTHER_SHAPES = {*SHAPE_WRITES, "resize_", "resize_as_", "set_"}


def let_views_copy(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Makes each view one that copies where it must. Gives these."""
    views = graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)
    for node in views:
        node.target = torch.ops.aten.reshape.default
    return views


@contextlib.contextmanager
def views_as_reshapes(module: torch.fx.GraphModule) -> Iterator[None]:
    """Meanwhile, each view copies where it must: that of what torch's own attention returns, ``.transpose(1, 2).view(b,
    s, h * d)``, relies on an order of its elements in memory, which is another one once attention is decomposed."""
    views = let_views_copy(module.graph)
    try:
        yield
    finally:
        for node in views:
            node.target = torch.ops.aten.view.default


def _is_dynamic(sizes: Sequence[Any]) -> bool:
    return any(not isinstance(s, int) for s in sizes)


def _equal(a: Any, b: Any) -> bool:
    return bool(statically_known_true(a == b))


def _product(sizes: Sequence[Any]) -> Any:
    total: Any = 1
    for s in sizes:
        total = total * s
    return total


def groups(source: Sequence[Any], target: Sequence[Any]) -> list[tuple[int, int]] | None:
    """How many dimensions of `source` become how many of `target`, from the first on; None if that cannot be told."""
    if not source and not target:
        return []
    counts = sorted(product(range(len(source) + 1), range(len(target) + 1)), key=lambda c: (c != (1, 1), sum(c)))
    for a, b in counts:
        if a + b and _equal(_product(source[:a]), _product(target[:b])):
            rest = groups(source[a:], target[b:])
            if rest is not None:
                return [(a, b), *rest]
    return None


def split_and_merge(graph: torch.fx.Graph) -> None:
    """Replaces every view of dynamic sizes by flatten, unflatten, squeeze and unsqueeze, where its groups are known."""
    for target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
        for node in graph.find_nodes(op="call_function", target=target):
            source, result = node.args[0].meta["val"], node.meta["val"]
            if not _is_dynamic([*source.shape, *result.shape]):
                continue
            found = groups(list(source.shape), list(result.shape))
            if found is None:
                continue
            with graph.inserting_before(node):
                node.replace_all_uses_with(_regrouped(graph, node, found))
            graph.erase_node(node)


def _regrouped(graph: torch.fx.Graph, node: torch.fx.Node, found: list[tuple[int, int]]) -> torch.fx.Node:
    sizes = _size_nodes(node)
    x = node.args[0]
    at = 0
    for merged, made in found:
        made_sizes = sizes[at : at + made]
        if merged == 0:
            for d in range(made):
                x = emitted(graph, torch.ops.aten.unsqueeze.default, x, at + d)
        elif made == 0:
            for _ in range(merged):
                x = emitted(graph, torch.ops.aten.squeeze.dim, x, at)
        else:
            if merged > 1:
                x = emitted(graph, torch.ops.aten.flatten.using_ints, x, at, at + merged - 1)
            if made > 1:
                x = emitted(graph, torch.ops.aten.unflatten.int, x, at, made_sizes)
        at += made
    return x


def _size_nodes(node: torch.fx.Node) -> list[Any]:
    """The target sizes: numbers, and nodes that compute them; −1 at most once, where torch infers it."""
    return list(node.args[1])


def emitted(graph: torch.fx.Graph, target: Any, *args: Any, **keywords: Any) -> torch.fx.Node:
    """A new node at the graph's insertion point, with its value as torch.export has it."""
    new = graph.call_function(target, args, keywords)
    values = torch.fx.map_arg(args, lambda n: n.meta["val"])
    new.meta["val"] = target(*values, **keywords)
    return new


def expand(x: torch.Tensor, size: Sequence[Any], *, implicit: bool = False) -> Any:
    """aten.expand with −1 for every dimension that is kept: then a dynamic one needs no test for size 1."""
    added = len(size) - x.dim()
    if not _is_dynamic([*x.shape, *size]):
        return NotImplemented
    told = [
        d
        for d, s in enumerate(x.shape, added)
        if not (isinstance(s, int) and s == 1) and not (isinstance(size[d], int) and size[d] == -1)
    ]
    if not told:  # else it would be called again and again
        return NotImplemented
    return torch.ops.aten.expand.default(x, [-1 if d in told else s for d, s in enumerate(size)])


def as_strided(x: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Any:
    """aten.as_strided of a contiguous tensor by one stride as a slice of its elements, by several as a gather."""
    if not _counts_elements(x, size, stride, offset):
        return NotImplemented
    flat = x.reshape(-1)
    if len(size) == 1:
        return flat[(offset or 0) : (offset or 0) + (size[0] - 1) * stride[0] + 1 : stride[0]]
    index = torch.full(list(size), offset or 0, dtype=torch.int64, device=x.device)
    for d, (n, step) in enumerate(zip(size, stride, strict=True)):
        shape = [n if d == other else 1 for other in range(len(size))]
        index = index + (torch.arange(n, device=x.device) * step).view(shape)
    return flat[index]


def as_strided_scatter(x: torch.Tensor, source: torch.Tensor, size: Any, stride: Any, offset: Any = None) -> Any:
    """aten.as_strided_scatter of a contiguous tensor by one stride, such as its diagonal, as a write to a slice."""
    if not _counts_elements(x, size, stride, offset) or len(size) != 1:
        return NotImplemented
    start = offset or 0
    end = start + (size[0] - 1) * stride[0] + 1
    return torch.slice_scatter(x.reshape(-1), source, 0, start, end, stride[0]).view(x.shape)


KEEPS_ORDER = (None, torch.preserve_format, torch.contiguous_format)


def select_scatter(x: torch.Tensor, source: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    """A slice of one element is written, as others are: torch-mlir compares numbers of elements instead."""
    dim = dim % x.dim()
    first = index if index >= 0 else index + x.shape[dim]
    return x.slice_scatter(source.unsqueeze(dim), dim, first, first + 1)


def split_with_sizes(x: torch.Tensor, sizes: Sequence[Any], dim: int = 0) -> Any:
    """aten.split_with_sizes, such as of ``chunk``, as slices where sizes are open, which has no lowering."""
    if not _is_dynamic(sizes):
        return NotImplemented
    parts = zip(sizes, accumulate(sizes), strict=True)
    return [torch.ops.aten.slice(x, dim, end - size, end) for size, end in parts]


def roll(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> torch.Tensor:
    """aten.roll as what goes round put before the rest. The importer takes a shift beyond the size for none."""
    if not dims:  # through all elements, in their order
        return roll(x.reshape(-1), shifts, [0]).view(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        start = -shift % torch.sym_max(x.size(dim), 1)
        x = torch.cat((torch.ops.aten.slice(x, dim, start), torch.ops.aten.slice(x, dim, 0, start)), dim)
    return x


def constant_pad_nd(x: torch.Tensor, pad: Sequence[Any], value: Any = 0) -> Any:
    """aten.constant_pad_nd by less than nothing as a slice, which a buffer's view cannot begin before."""
    cut = [i for i, p in enumerate(pad) if isinstance(p, int) and p < 0]
    if not cut:
        return NotImplemented
    for i in cut:
        dim = x.dim() - 1 - i // 2
        x = torch.ops.aten.slice(x, dim, 0, x.size(dim) + pad[i]) if i % 2 else torch.ops.aten.slice(x, dim, -pad[i])
    return torch.ops.aten.constant_pad_nd(x, [0 if i in cut else p for i, p in enumerate(pad)], value)


def resize(x: torch.Tensor, size: Sequence[Any], *, memory_format: Any = None) -> Any:
    """aten.resize of what lies in memory as its dimensions are told: elements in their order, then zeros, where torch
    leaves what memory happens to hold."""
    if _is_dynamic([*x.shape, *size]) or not x.is_contiguous() or memory_format not in KEEPS_ORDER:
        return NotImplemented
    flat, needed = x.reshape(-1), _product(size)
    if needed > flat.numel():
        flat = torch.cat((flat, flat.new_zeros(needed - flat.numel())))
    return flat[:needed].reshape(list(size))


def _counts_elements(x: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> bool:
    """Whether strides of memory are strides of elements, all known, and there is more than one element to take."""
    known = not _is_dynamic([*x.shape, *size, *stride, offset or 0]) and all(s > 0 for s in [*size, *stride])
    return known and x.is_contiguous() and bool(size)


def multiply_matrices(graph: torch.fx.Graph) -> None:
    """Gives vectors that are multiplied with tensors of three and more dimensions a dimension of one element:
    those of two have a lowering."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.matmul.default):
        ranks = [n.meta["val"].dim() for n in node.args]
        if min(ranks) != 1 or max(ranks) < 3:
            continue
        is_row = ranks[0] == 1
        with graph.inserting_before(node):
            operands = list(node.args)
            vector = 0 if is_row else 1
            operands[vector] = emitted(graph, torch.ops.aten.unsqueeze.default, operands[vector], 0 if is_row else 1)
            product = emitted(graph, torch.ops.aten.matmul.default, *operands)
            node.replace_all_uses_with(emitted(graph, torch.ops.aten.squeeze.dim, product, -2 if is_row else -1))
        graph.erase_node(node)


BY_DIMENSION = {
    getattr(torch.ops.aten, name)
    for name in ("scatter", "scatter_add", "scatter_reduce", "gather", "index_add", "index_select", "index_reduce")
}


def fix_sizes(graph: torch.fx.Graph) -> None:
    """Makes numbers of sizes that torch.export took to be open until something fixed them, as math.log(n) does: of
    arguments they are symbols still, with a value, which the importer takes for open."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and _is_dynamic(value.shape):
            sizes = [known if (known := _fixed(size)) is not None else size for size in value.shape]
            if [*map(type, sizes)] != [*map(type, value.shape)]:
                node.meta["val"] = value.new_empty_strided(sizes, value.stride())
                node.meta.pop("tensor_meta", None)  # the same once more, which the importer would go by


def _fixed(size: int | torch.SymInt) -> int | None:
    return size.node.maybe_as_int() if isinstance(size, torch.SymInt) else size


def count_from_the_start(graph: torch.fx.Graph) -> None:
    """Gives scatters and gathers dimensions that are not counted from the end: of others the importer's passes make
    indices out of range, and end the process."""
    for node in graph.nodes:
        if getattr(node.target, "overloadpacket", None) in BY_DIMENSION and node.args[1] < 0:
            node.update_arg(1, node.args[1] + node.args[0].meta["val"].dim())


def make_empty_anew(graph: torch.fx.Graph) -> None:
    """Makes each tensor that has no elements, whatever it is computed from."""
    found = False
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or not any(s == 0 for s in _known(value)):
            continue
        if _is_dynamic(value.shape) or node.target is torch.ops.aten.full.default:
            continue
        with graph.inserting_before(node):
            made = graph.call_function(torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype})
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        found = True
    if found:
        graph.eliminate_dead_code()


def _known(value: torch.Tensor) -> list[int]:
    return [s for s in value.shape if isinstance(s, int)]
