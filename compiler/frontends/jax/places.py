"""Where the user wrote what JAX traced, for messages."""

import os
from collections.abc import Callable
from typing import Any

from jax._src import core, source_info_util

from ....dialects.diagnostic import NOWHERE, DiagnosedError, Diagnostic, Place

OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
WAY_OUT = "keep it outside of the function that is compiled"
NEVER = {
    "fft": "Fourier transforms have no lowering to linalg",
    "callback": "a kernel calls nothing of Python's, and no kernels that were not compiled from functions of JAX",
    "debug_print": "a kernel prints nothing",
}


def refuse(jaxpr: Any) -> None:
    """A user's error for the first equation that no kernel can have."""
    for word, problem in NEVER.items():
        found = written(jaxpr, lambda eqn: word in eqn.primitive.name)  # noqa: B023 (it is called here)
        if found is not None:
            raise refusal(problem, found)


def refusal(problem: str, place: Place) -> DiagnosedError:
    return DiagnosedError([Diagnostic("error", *place, f"{problem}; {WAY_OUT}")])


def written(jaxpr: Any, holds: Callable[[Any], bool]) -> Place | None:
    """Where the first equation stands of which `holds` is true, calls, loops and branches included."""
    for eqn in jaxpr.eqns:
        inner = next((at for body in core.jaxprs_in_params(eqn.params) if (at := written(body, holds))), None)
        if inner is not None or holds(eqn):
            return inner if inner not in (None, NOWHERE) else place_of_equation(eqn)
    return None


def place_of_equation(eqn: Any) -> Place:
    frames = source_info_util.user_frames(eqn.source_info.traceback)
    frame = next((f for f in frames if not f.file_name.startswith(OURS)), None)
    return NOWHERE if frame is None else (frame.file_name, frame.start_line, frame.start_column)


def at_place_of(eqn: Any) -> Any:
    """A context in which what is traced stands where `eqn` does."""
    return source_info_util.user_context(eqn.source_info.traceback)
