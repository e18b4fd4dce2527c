"""What calls of torch in a graph are: matmuls, views, element-wise, writing to memory; by their names."""

import functools
import inspect
import operator
from typing import Any

import torch

MATMULS = {"matmul", "bmm", "einsum", "baddbmm", "__matmul__", "mm", "__rmatmul__", "baddbmm_"}
ATTENTIONS = {"scaled_dot_product_attention", "flex_attention"}
SOFTMAXES = {"softmax", "log_softmax", "_softmax", "_safe_softmax"}
EXPONENTIALS = {*SOFTMAXES, "exp", "exp2", "logsumexp", "exp_"}
WITHOUT_SOFTMAX = {"sigmoid", "sigmoid_", "relu", "relu_", "square"}
WEIGHTING = {"tril", "log_sigmoid", "hardswish", "softsign", "tanhshrink"}  # that torch does not say to be pointwise
LINEAR = {"add", "sub", "subtract", "rsub", "mul", "multiply", "neg", "negative"}
LINEAR |= {"div", "divide", "true_divide"}  # pointwise ones
SUMS = {"sum", "mean"}
LAYERS = {"linear", "conv1d", "conv2d", "conv3d"}
VIEWS = {
    *("view", "reshape", "transpose", "permute", "unsqueeze", "squeeze", "expand", "expand_as", "flatten", "unflatten"),
    *("contiguous", "movedim", "moveaxis", "swapaxes", "swapdims", "t", "getattr", "getitem", "select", "narrow"),
    *("chunk", "split", "unbind", "to", "float", "half", "double", "bfloat16", "type_as", "view_as", "broadcast_to"),
    *("repeat_interleave", "mT", "T", "clone", "detach", "repeat", "tile", "_unsafe_view"),
}
CREATION = {"arange", "ones", "zeros", "full", "tril", "triu", "tensor", "scalar_tensor", "ones_like", "zeros_like"}
CREATION |= {"new_ones", "new_zeros", "new_full", "new_tensor", "full_like"}
UNFILLED = {"empty", "empty_like", "new_empty"}
COSTLY = {"tanh", "exp", "exp2", "log", "sqrt", "pow", "repeat_interleave", "repeat", "tile"}
ELEMENTWISE = {
    *("add", "sub", "mul", "div", "truediv", "floordiv", "floor_divide", "rsub", "neg", "where", "masked_fill", "abs"),
    *("ge", "le", "gt", "lt", "eq", "ne", "and_", "or_", "invert", "xor", "logical_and", "logical_or", "logical_not"),
    *("logical_xor", "bitwise_and", "bitwise_or", "bitwise_not", "minimum", "maximum", "clamp", "bool", "int", "long"),
    *("tanh", "exp", "exp2", "log", "sqrt", "pow", "remainder", "mod", "__and__", "__or__", "__invert__", "relu"),
    *("__eq__", "__ne__", "__ge__", "__gt__", "__le__", "__lt__"),
}
IN_PLACE = {"iadd", "isub", "imul", "itruediv", "iand", "ior", "ixor", "ifloordiv"}
MODES = {"_set_grad_enabled", "_enter_autocast", "_exit_autocast"}  # of what is called behind them
# Calls that write to some arguments where another one is given, and true: neither names nor schemas tell.
STATISTICS = ("running_mean", "running_var")
QUIET_WRITES = {
    **dict.fromkeys(("embedding", "embedding_bag"), ("max_norm", ("weight",))),
    **dict.fromkeys(("batch_norm", "native_batch_norm", "cudnn_batch_norm"), ("training", STATISTICS)),
    "instance_norm": ("use_input_stats", STATISTICS),
}
DIVISIONS = {"div", "truediv", "mul", "div_", "itruediv", "mul_", "imul"}  # mul is by a reciprocal
MAX_PATH = 80


def name_of(node: torch.fx.Node) -> str:
    """The bare name of what a node calls, "" if it calls nothing."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    if node.target is getattr:
        return str(node.args[1])
    return getattr(node.target, "__name__", "").partition(".")[0]  # aten's have their overload behind a dot


def is_matmul(node: torch.fx.Node) -> bool:
    """Whether it sums products: a matmul of any name, or a sum of elements that are multiplied with each other."""
    name = name_of(node)
    if name != "sum":
        return name in MATMULS
    product = node.args[0] if node.args else None
    if not isinstance(product, torch.fx.Node) or name_of(product) != "mul" or len(product.users) != 1:
        return False
    value = product.meta.get("example_value")
    factors = [n.meta["example_value"] for n in tensor_operands(product)]
    return isinstance(value, torch.Tensor) and len(factors) == 2 and all(elements(value) > elements(f) for f in factors)


def makes_weights(node: torch.fx.Node) -> bool:
    """Whether it may make weights of scores: an exponential, alone or in a softmax, also a number to the power of a
    tensor; a function that takes the place of a softmax."""
    name = name_of(node)
    if name in EXPONENTIALS or name in WITHOUT_SOFTMAX:
        return True
    return name in ("pow", "__rpow__") and not isinstance(node.args[0], torch.fx.Node)


def may_make_weights(node: torch.fx.Node) -> bool:
    """As `makes_weights`, where it stands between matmuls of several heads or batch entries: any function of scores
    that gives no multiples of them, such as a mask, a product with a decay or with itself, or a reciprocal."""
    name = name_of(node)
    name = name if name.endswith("__") else name.removesuffix("_")  # in place or not
    if name in ("mul", "__mul__", "imul"):
        factors = [*node.args, *node.kwargs.values()]
        ranks = [n.meta["example_value"].dim() for n in factors if n in tensor_operands(node)]
        return len(ranks) == 2 and min(ranks) > 1
    if name in ("truediv", "div", "__rtruediv__"):
        return name == "__rtruediv__" or not isinstance(node.args[0], torch.fx.Node)
    return name in WEIGHTING or _is_nonlinear(name)


@functools.cache
def _is_nonlinear(name: str) -> bool:
    """Whether torch has a function of this name that computes each element by itself, and is not linear in it."""
    packet = getattr(torch.ops.aten, name, None) if name and name not in LINEAR | VIEWS else None
    overloads = [getattr(packet, one) for one in packet.overloads()] if packet is not None else []
    return any(torch.Tag.pointwise in one.tags for one in overloads)


def has_heads(matmul: torch.fx.Node) -> bool:
    """Whether it multiplies several matrices by as many others."""
    return all(n.meta["example_value"].dim() > 2 for n in tensor_operands(matmul))


def tensor_operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [n for n in node.all_input_nodes if isinstance(n.meta.get("example_value"), torch.Tensor)]


def is_operand(number: torch.fx.Node) -> bool:
    """Whether a number is only ever combined with tensors' elements: then a tensor without dimensions does as well."""

    def combines(user: torch.fx.Node) -> bool:
        if name_of(user) == "flex_attention":  # what its modifications capture comes last
            held: list[torch.fx.Node] = []
            torch.fx.map_arg((user.args[:-2], user.kwargs), held.append)
            return number not in held
        sides = len(user.args) == 2 or name_of(user) in ("where", "masked_fill")
        ranks = [n.meta["example_value"].dim() for n in tensor_operands(user)]
        return name_of(user) in ELEMENTWISE and sides and not user.kwargs and max(ranks, default=0) > 0

    return isinstance(number.meta.get("example_value"), torch.SymInt) and all(map(combines, number.users))


def elements(tensor: Any) -> int:
    total = 1
    for size in tensor.shape:
        total *= size if isinstance(size, int) else getattr(size.node, "hint", None) or 1
    return total


def written_by(node: torch.fx.Node) -> list[torch.fx.Node]:
    """What a call may write to: nothing, most often."""
    if node.op not in ("call_function", "call_method"):
        return []
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return node.all_input_nodes if _may_write_inside(node) else []
    if name_of(node) in QUIET_WRITES:
        return _written_quietly(node)
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):  # custom ones say it nowhere else
        return _written_by_schema(node)
    if not _writes_by_its_name(node):
        return []
    if name_of(node).startswith("_foreach_"):
        return node.all_input_nodes
    targets: list[torch.fx.Node] = []
    torch.fx.map_arg(node.kwargs.get("out"), targets.append)
    return targets or node.all_input_nodes[:1]


def _written_quietly(node: torch.fx.Node) -> list[torch.fx.Node]:
    """What a call of QUIET_WRITES writes to; all that it reads, if its arguments are not known."""
    condition, names = QUIET_WRITES[name_of(node)]
    packet = getattr(torch.ops.aten, name_of(node), None)
    if inspect.isfunction(node.target):
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs)
        arguments: dict[str, Any] = given.arguments
    elif packet is not None:
        positions = [argument.name for argument in getattr(packet, packet.overloads()[0])._schema.arguments]
        arguments = {**dict(zip(positions, node.args, strict=False)), **node.kwargs}
    else:
        return node.all_input_nodes
    if not arguments.get(condition, condition == "use_input_stats"):  # its default is True
        return []
    return [n for name in names if isinstance(n := arguments.get(name), torch.fx.Node)]


def _written_by_schema(node: torch.fx.Node) -> list[torch.fx.Node]:
    target: Any = node.target
    overloads = (
        [target] if isinstance(target, torch._ops.OpOverload) else [getattr(target, o) for o in target.overloads()]
    )
    found: list[torch.fx.Node] = []
    for overload in overloads:
        for i, argument in enumerate(overload._schema.arguments):
            if argument.is_write:
                given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
                torch.fx.map_arg(given, found.append)
    return list(dict.fromkeys(found))


def _may_write_inside(node: torch.fx.Node) -> bool:
    """Whether a call of a graph, such as of one under torch.utils.checkpoint, may write to what it is given."""
    held: Any = [n for n in node.all_input_nodes if n.op == "get_attr"]
    bodies = [torch.fx.graph_module._get_attr(node.graph.owning_module, str(n.target)) for n in held]
    graphs = [b.graph for b in bodies if isinstance(b, torch.fx.GraphModule)]
    return not graphs or any(written_by(inner) for graph in graphs for inner in graph.nodes)


def _writes_by_its_name(node: torch.fx.Node) -> bool:
    name = name_of(node)
    if getattr(node.target, "__module__", "") == operator.add.__module__:  # and_ and or_ write nothing
        return name in IN_PLACE or node.target is operator.setitem
    in_place = (name.endswith("_") and not name.endswith("__")) or name.strip("_") in IN_PLACE
    return in_place or node.kwargs.get("out") is not None or _is_told_to(node)


def _is_told_to(node: torch.fx.Node) -> bool:
    """Whether it is a function of torch.nn with the argument `inplace`, such as relu, and that is true."""
    if getattr(node.target, "__module__", "") != torch.nn.functional.__name__ or isinstance(node.target, str):
        return False
    try:
        return bool(inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments.get("inplace"))
    except (TypeError, ValueError):  # not written in Python
        return False
