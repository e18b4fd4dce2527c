"""Why what looks like attention in a traced program is none."""

from collections.abc import Mapping
from types import MappingProxyType

from ....dialects.tiling.structured import reading_once
from ....transforms.attention import find_attention
from ....transforms.passes import Report, listening
from ....transforms.raise_attention import RaiseAttention
from ... import counts
from .tracing import TorchProgram

NO_ATTENTION = "no plain softmax was found between its matmuls"


def why_left(program: TorchProgram, statistics: Mapping[int, str] = MappingProxyType({})) -> str:
    """Why there is no attention in `program`, "" if there is; attention is raised there. Those of the inputs that are
    `statistics` are of rows of one: what reads them follows from it; of these kinds (``transforms/raising/given.py``).
    """
    module = program.module
    arguments = [(i, a) for i, a in enumerate(program.lowered.arguments) if isinstance(a, int)]
    kinds = {i: statistics[a] for i, a in arguments if a in statistics}
    maxima, weights = (tuple(i for i, kind in kinds.items() if kind == one) for one in ("kept max", "kept weight"))
    reasons: list[str] = []

    def listen(report: Report) -> None:
        reasons.extend(report.message.removeprefix(p) for p in counts.LEFT if report.message.startswith(p))

    with module.context, module.operation.location, listening(listen), reading_once():
        RaiseAttention(tuple(kinds), maxima, weights).run(module.operation)
    if find_attention(module.operation):
        return ""
    return "; ".join(dict.fromkeys(reasons)) or NO_ATTENTION


def attentions(program: TorchProgram) -> int:
    """How many attentions there are in `program`, which are raised there."""
    module = program.module
    with module.context, module.operation.location, listening(lambda report: None), reading_once():
        RaiseAttention().run(module.operation)
        return len([*find_attention(module.operation)])
