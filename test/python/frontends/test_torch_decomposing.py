"""Programs that are decomposed in one pass, or made of graphs that are there, are those that torch makes."""

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler.frontends.torch import decomposing, derivatives, lowering  # noqa: E402
from attn_opt.compiler.frontends.torch.casts import forget_asserts  # noqa: E402
from attn_opt.compiler.frontends.torch.decompositions import decompositions  # noqa: E402
from attn_opt.compiler.frontends.torch.functions import Function  # noqa: E402
from attn_opt.compiler.frontends.torch.joint import Joint  # noqa: E402
from attn_opt.compiler.frontends.torch.tracing import TorchProgram, trace  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


class Layer(torch.nn.Module):
    """Attention with much around it."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16, bias=False)
        self.register_buffer("slopes", torch.rand(2, 1, 1))
        self.scale = torch.tensor([0.5, 2.0])

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        q, k, v = self.into(F.rms_norm(x, (16,))).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * self.slopes
        scores += torch.arange(x.shape[1]).float()
        scores.masked_fill_(scores > number, -torch.inf)
        return x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)) * self.scale.sum()


class Counting(torch.nn.Module):
    """Writes to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


FUNCTIONS = {
    "views": (lambda x: x.unflatten(-1, (2, 8)).transpose(0, 1).reshape(-1, 8), (torch.rand(3, 16),)),
    "products": (lambda x, y: F.gelu(torch.einsum("bij,bkj->bik", x, y)), (torch.rand(2, 3, 4), torch.rand(2, 5, 4))),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (torch.rand(2, 3, 5, 8),)),
    "norms": (lambda x: F.layer_norm(x, (8,)) + F.rms_norm(x, (8,)), (torch.rand(3, 8),)),
    "writes to what it makes": (lambda x: (x * 2).add_(1).masked_fill_(x > 0, 3).sort(-1).values, (torch.rand(3, 8),)),
    "writes to a part": (lambda x: torch.zeros(4, 8).index_copy_(0, torch.tensor([2, 1, 0]), x), (torch.rand(3, 8),)),
    "a layer": (Layer(), (torch.rand(2, 5, 16), 3)),
    "an input as it is": (lambda x, y: (x, y + 1, y), (torch.rand(3), torch.rand(3))),
}


def described_nodes(program: torch.export.ExportedProgram) -> list:
    """By what they do, names aside, and what it asserts, which is not read."""
    forget_asserts(program.graph)
    numbers = {node: i for i, node in enumerate(program.graph.nodes)}

    def by_number(value: object) -> str:
        return str(torch.fx.map_arg(value, lambda node: ("node", numbers[node])))

    found = []
    for node in program.graph.nodes:
        value = node.meta.get("val")
        of = (value.shape, value.dtype, value.stride()) if isinstance(value, torch.Tensor) else type(value)
        target = node.target if node.op == "call_function" else node.op
        found.append((target, by_number(node.args), by_number(node.kwargs), of))
    return found


def described(program: torch.export.ExportedProgram) -> list:
    specs = [*program.graph_signature.input_specs, *program.graph_signature.output_specs]
    return [*described_nodes(program), *((spec.kind, type(spec.arg), spec.target) for spec in specs)]


def exported(function: object, args: tuple, **options: object) -> torch.export.ExportedProgram:
    module = function if isinstance(function, torch.nn.Module) else Function(function)
    with torch.no_grad():
        return torch.export.export(module, args, **options)


@pytest.mark.parametrize("rules", ({}, decompositions()), ids=("none", "all"))
@pytest.mark.parametrize("case", FUNCTIONS)
def test_as_torch_does(case, rules, monkeypatch):
    function, args = FUNCTIONS[case]
    program = exported(function, args)
    with lowering._decomposing():
        expected = program.run_decompositions(dict(rules))
        monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", None)
        assert described(decomposing.decomposed(program, rules)) == described(expected)


@pytest.mark.parametrize(
    "function, args",
    (
        (Counting(), (torch.rand(3),)),
        (lambda x: x.add_(1), (torch.rand(3),)),
        (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), (torch.rand(3),)),
    ),
    ids=("a buffer", "an argument", "branches"),
)
def test_what_takes_more(function, args):
    """Writes that remain, and graphs within the graph: torch does it all."""
    program = exported(function, args)
    with lowering._decomposing():
        assert decomposing._written_down(program, {}) is None
        assert described(decomposing.decomposed(program, {})) == described(program.run_decompositions({}))


def test_of_open_sizes():
    rows = torch.export.Dim("rows", min=2, max=64)
    program = exported(Layer(), (torch.rand(2, 5, 16), 3), dynamic_shapes=({1: rows}, None))
    with lowering._decomposing():
        found = [described_nodes(p) for p in (decomposing.decomposed(program, {}), program.run_decompositions({}))]
    of_tensors = [[target for target, _, _, of in nodes if type(of) is tuple] for nodes in found]
    assert of_tensors[0] == of_tensors[1]  # sizes are asked for elsewhere


def test_programs_of_derivatives():
    """In linalg they are what torch.export's are, arguments that are no tensors and what is held among theirs. What is
    kept takes no memory to trace with."""
    example, layer = (torch.rand(2, 5, 16), 3), Layer()
    program = trace(layer, example)
    with torch.no_grad():
        needed, orders = (0, "into.weight"), [(0, 1, 2), (1, 0)]
        joint = Joint(program.functional, example, needed, orders, False, [0], returned=[0])
        again = derivatives.Derivative(program.functional, example, needed, orders, False, [0])
        for module, given in ((joint.forward_half, []), (joint, joint.examples()), (again, again.examples())):
            assert all(isinstance(value, FakeTensor) for value in given)
            zeros = [torch.zeros(value.shape, dtype=value.dtype) for value in given]
            made = TorchProgram(module.exported((*example, *given)))
            expected = TorchProgram(torch.export.export(module, (*example, *zeros)))
            assert str(made.module) == str(expected.module)
            assert made.returned == expected.returned
            for one, other in zip(made.lowered.arguments, expected.lowered.arguments, strict=True):
                assert one is other or one == other


class Scaled(derivatives.OfProgram):
    """What a program takes, times a tensor that its graph has as its own."""

    def written(self, interpreter, values):
        return derivatives.traced(lambda x: (x * torch.tensor([1.0, 2.0, 3.0]),), values)


def test_a_graph_that_has_tensors_of_its_own():
    x = torch.rand(2, 3)
    with torch.no_grad():
        scaled = Scaled(trace(lambda x: x + 1, (x,)).functional, (x,), any_sizes=False)
        made, expected = TorchProgram(scaled.exported((x,))), TorchProgram(torch.export.export(scaled, (x,)))
    assert str(made.module) == str(expected.module)
    for program in (made, expected):
        constant, number = program.lowered.arguments
        assert number == 0 and constant.tolist() == [1, 2, 3]
