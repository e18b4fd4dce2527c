"""Compiles several graphs at once, in processes, into the cache on disk, from which `compile` takes them then.

    failures = precompile([Job(text, "nvidia", {"arch": "sm_90a"}), …], processes=8)

``python -m attn_opt.compiler.precompile`` is one of the processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from .worker_process import ask_all, serve

LONGEST = 300.0  # seconds


@dataclasses.dataclass(frozen=True)
class Job:
    """What to compile; `options`: those of `compile`, as JSON has them."""

    text: str
    target: str = "cpu"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def precompile(
    jobs: Sequence[Job],
    processes: int = 0,
    environment: Mapping[str, str] | None = None,
) -> list[str | None]:
    """Why each was not compiled; None where it was. `processes`: 0 = one for each processor; `environment`: variables
    besides ours."""
    answers = ask_all(__name__, [dataclasses.asdict(job) for job in jobs], processes, environment, LONGEST)
    return [answer.get("failed") for answer in answers]


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    from .api import CompileError, compile

    try:
        kernel = compile(job["text"], target=job["target"], **job["options"])
        if job["target"] == "nvidia":
            kernel.assemble()
    except CompileError as error:
        return {"failed": str(error).split("\n")[0]}
    except Exception as error:  # of ours: told, and the next one is done
        return {"failed": f"{type(error).__name__}: {error}"}
    return {}


if __name__ == "__main__":
    serve(_answer)
