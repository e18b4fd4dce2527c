"""Why what looks like attention in a traced program is none."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ....dialects.tiling.structured import reading_once
from ....transforms.attention import Attention, find_attention
from ....transforms.passes import Report, listening
from ....transforms.raise_attention import RaiseAttention
from ... import counts
from .tracing import TorchProgram

NO_ATTENTION = "no plain softmax was found between its matmuls"


def why_left(program: TorchProgram, statistics: Mapping[int, str] = MappingProxyType({})) -> str:
    """Why there is no attention in `program`, "" if there is; attention is raised there. Those of the inputs that are
    `statistics` are of rows of one: what reads them follows from it; of these kinds (``transforms/raising/given.py``).
    """
    arguments = [(i, a) for i, a in enumerate(program.lowered.arguments) if isinstance(a, int)]
    kinds = {i: statistics[a] for i, a in arguments if a in statistics}
    maxima, weights = (tuple(i for i, kind in kinds.items() if kind == one) for one in ("kept max", "kept weight"))
    reasons: list[str] = []

    def listen(report: Report) -> None:
        reasons.extend(report.message.removeprefix(p) for p in counts.LEFT if report.message.startswith(p))

    if _raised(program, RaiseAttention(tuple(kinds), maxima, weights), listen):
        return ""
    return "; ".join(dict.fromkeys(reasons)) or NO_ATTENTION


def attentions(program: TorchProgram) -> int:
    """How many attentions there are in `program`, which are raised there."""
    return len(_raised(program, RaiseAttention(), lambda report: None))


def _raised(program: TorchProgram, raising: RaiseAttention, listen: Callable[[Report], None]) -> list[Attention]:
    module = program.module
    with module.context, module.operation.location, listening(listen), reading_once():
        raising.run(module.operation)
    return [*find_attention(module.operation)]
