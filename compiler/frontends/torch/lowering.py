"""From a program of torch.export to linalg on tensors, by the importer and the passes of the bindings.

Ops are decomposed first (`torch/decompositions.py`); flex_attention becomes two matmuls around a softmax, with its
modifications inlined.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ....dialects import make_context
from ....dialects.mlir import ir
from ...diagnostics import user_error
from .. import nans
from ..lowering import check_lowered, convert_by_32_bits, first_line, ops, run
from ..open_reshapes import to_views
from ..sequential import to_loops
from ..sorting import by_rank
from . import complex as torch_complex
from . import divisions as torch_divisions
from . import einsums as torch_einsums
from . import experts as torch_experts
from . import numbers as torch_numbers
from . import scalars as torch_scalars
from . import shapes as torch_shapes
from . import sinks as torch_sinks
from . import unsigned as torch_unsigned
from .casts import forget_asserts
from .composites import prepared_once
from .decomposing import decomposed
from .decompositions import decompositions
from .lazy_code import code_when_run
from .transforms import levels_kept, refuse_tangents

TO_BACKEND = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline"
    "{extra-library= backend-legal-ops=aten.flatten.using_ints,aten.unflatten.int})"  # they would become views again
)
TO_LINALG = "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true})"
WAY_OUT = "leave that op to torch, by torch.compile(…, backend='attn_opt')"
NUMBERS = {torch.SymInt: torch.int64, torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
HINTS = {"ml_program.global": f"random numbers are drawn there: pass them as an argument, or {WAY_OUT}"}


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A program as a module whose function ``main`` takes the tensors `arguments` and returns those of `results`.

    An argument is a tensor that the program holds (a parameter, a buffer, a constant) or the number of a user's input;
    `results` has the number of the function's result for every output of the program's graph, None for what is known
    already; a number that a call's sizes tell is a tensor of no dimension.
    """

    module: ir.Module
    arguments: list[torch.Tensor | int]
    program: ExportedProgram
    results: list[int | None]


def lower(program: ExportedProgram) -> Lowered:
    """Linalg on tensors for a program of torch.export. A user's error where there is no way."""
    from .flex import without_flex_attention

    _refuse_other_shapes(program.graph_module.graph)
    refuse_tangents(program.graph_module.graph, WAY_OUT)
    program = without_flex_attention(program)
    with torch_shapes.views_as_reshapes(program.graph_module), torch_einsums.autocast(program.graph), _decomposing():
        program = decomposed(program, {**decompositions(), **torch_experts.products()})
    graph = program.graph_module.graph
    torch_complex.split(graph)
    _refuse(graph)
    arguments = _arguments(program)
    _forget_devices(graph)
    torch_shapes.fix_sizes(graph)
    torch_shapes.make_empty_anew(graph)
    torch_unsigned.widen(graph)
    torch_shapes.multiply_matrices(graph)
    torch_shapes.count_from_the_start(graph)
    torch_shapes.split_and_merge(graph)
    torch_sinks.write_out(graph)
    torch_numbers.write_out(graph)
    torch_scalars.as_tensors(graph)
    results = _tensor_outputs(graph)
    module = _imported(graph)
    run(module, TO_BACKEND, WAY_OUT)
    run(module, TO_LINALG, WAY_OUT)
    _erase_asserts(module)
    to_views(module)
    nans.keep(module)
    torch_divisions.of_integers(module)
    to_loops(module)
    by_rank(module)
    # Sizes are not negative: that the importer asks whether they are, where it broadcasts, would make others of them.
    run(module, "builtin.module(func.func(int-range-optimizations),canonicalize,cse)", WAY_OUT)
    convert_by_32_bits(module)
    check_lowered(module, ("tm_tensor", "torch", "torch_c", "ml_program"), WAY_OUT, HINTS)
    return Lowered(module, arguments, program, results)


def functional(program: ExportedProgram) -> ExportedProgram:
    """The program without writes to memory and without flex_attention, with the casts of autocast as ops. A user's
    error where there is no way."""
    from .flex import without_flex_attention

    with _decomposing():
        program = without_flex_attention(program)
        with torch_einsums.autocast(program.graph):
            program = decomposed(program, {})
    forget_asserts(program.graph)
    torch_shapes.let_views_copy(program.graph)
    return program


@contextlib.contextmanager
def _decomposing() -> Iterator[None]:
    try:
        with warnings.catch_warnings(), levels_kept(), prepared_once(), code_when_run():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own trees
            warnings.filterwarnings("ignore", "A model attribute")  # … about constants that have gradients: they do
            yield
    except Exception as error:
        raise user_error(f"torch cannot decompose the program: {first_line(error)}", WAY_OUT) from error


def _is_no_number(constant: torch.Tensor) -> bool:
    """Whether a constant of one element is more than that: it may be learned."""
    return constant.is_complex() or constant.requires_grad


def _arguments(program: ExportedProgram) -> list[torch.Tensor | int]:
    """What to pass for each placeholder. Scalar constants and inputs that are no tensors become part of the graph."""
    graph = program.graph_module.graph
    held = {**program.state_dict, **program.constants}
    arguments: list[torch.Tensor | int] = []
    user_inputs = 0
    for node, spec in zip(graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            number, user_inputs = user_inputs, user_inputs + 1
            if isinstance(node.meta.get("val"), torch.Tensor):
                arguments.append(number)
            elif not node.users:
                graph.erase_node(node)
            else:
                raise user_error(f"argument {number} is a symbolic number, which is not supported; pass it as a tensor")
            continue
        value = held[spec.target]
        if spec.kind == InputKind.CONSTANT_TENSOR and not node.users:  # it may be what torch made up to trace with
            graph.erase_node(node)
            continue
        if spec.kind == InputKind.CONSTANT_TENSOR and value.numel() == 1 and not _is_no_number(value):
            with graph.inserting_before(node):
                scalar = graph.call_function(
                    torch.ops.aten.full.default, (list(value.shape), value.item()), {"dtype": value.dtype}
                )
            scalar.meta = dict(node.meta)
            node.replace_all_uses_with(scalar)
            # Placeholders come first.
            last = graph.find_nodes(op="placeholder")[-1]
            if scalar < last:
                last.append(scalar)
            graph.erase_node(node)
        else:
            arguments.append(value)
    return arguments


def _forget_devices(graph: torch.fx.Graph) -> None:
    """Where a tensor is made is for the target to say; the importer's passes know no device but the CPU."""
    cpu = torch.device("cpu")
    for node in list(graph.nodes):
        if node.target == torch.ops.prims.device_put.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        arguments = (node.args, node.kwargs)
        forgotten = torch.utils._pytree.tree_map_only(torch.device, lambda _: cpu, arguments)
        node.args, node.kwargs = forgotten


def _tensor_outputs(graph: torch.fx.Graph) -> list[int | None]:
    """Makes the graph return each tensor, and each number that sizes tell as one of no dimension; see `lower`."""
    node = graph.output_node()
    tensors: list[torch.fx.Node] = []
    numbers: list[int | None] = []
    for value in node.args[0]:
        if not isinstance(value, torch.fx.Node):
            numbers.append(None)
            continue
        numbers.append(len(tensors))
        tensors.append(value if isinstance(value.meta["val"], torch.Tensor) else _as_tensor(value, node))
    node.args = (tuple(tensors),)
    return numbers


def _as_tensor(number: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node:
    """A number that is known at each call, as a tensor of no dimension."""
    dtype = NUMBERS[type(number.meta["val"])]
    with before.graph.inserting_before(before):
        made = before.graph.call_function(torch.ops.aten.scalar_tensor.default, (number,), {"dtype": dtype})
    with FakeTensorMode():
        made.meta["val"] = torch.empty((), dtype=dtype)
    return made


def _refuse_other_shapes(graph: torch.fx.Graph) -> None:
    """A user's error where an argument gets another shape: that is no write to its elements, and would be lost."""
    for node in graph.nodes:
        name = str(getattr(node.target, "overloadpacket", "")).removeprefix("aten.")
        if name in torch_shapes.OTHER_SHAPES and node.args[0].op == "placeholder":
            problem = f"{name} gives argument '{node.args[0].name}' another shape, which no kernel can"
            raise user_error(f"{problem}; call it on {node.args[0].name}.clone(), or {WAY_OUT}")


def _refuse(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        if str(node.target).startswith("auto_functionalized"):
            raise user_error(f"{node.args[0]}, a custom op that writes to its arguments, has no lowering; {WAY_OUT}")
        if node.target is torch.ops.higher_order.with_effects:
            raise user_error(f"{node.args[1]} has an effect beside its results, which no kernel has; {WAY_OUT}")
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.is_complex():
            raise user_error(f"complex numbers are not supported, such as '{node.name}'; {WAY_OUT}")
        tags = getattr(node.target, "tags", ())
        if torch.Tag.dynamic_output_shape in tags and isinstance(value, torch.Tensor) and free_unbacked_symbols(value):
            raise user_error(f"how many elements '{node.name}', of {node.target}, has depends on data; {WAY_OUT}")


def _imported(graph: torch.fx.Graph) -> ir.Module:
    """The graph in the torch dialect, in a context of its own."""
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.extras.fx_importer import FxImporter

    context = make_context()
    torch_dialect.register_dialect(context)
    importer = FxImporter(context=context)
    try:
        importer.import_stateless_graph(graph, func_name="main")
    except Exception as error:
        raise user_error(f"the graph of torch.export cannot be imported: {first_line(error)}", WAY_OUT) from error
    return importer.module


def _erase_asserts(module: ir.Module) -> None:
    """Sizes that do not match have been refused by then: torch.export's constraints are checked for each call's."""
    for op in ops(module):
        if op.name == "cf.assert":
            op.erase()
