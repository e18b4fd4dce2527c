"""Tests keep compiled kernels, and what the tools that they start write, in a folder of their own, one for all
processes: they see none of the user's, and leave none. Tests of properties draw the same examples in each run, so that
a change passes or fails by what it changed; `make fuzz` draws others. Runs without slow tests draw a part of them (see
`properties.py`).

Of a test with `@pytest.mark.sampled(n)` one case in n is quick, spread over all of them; the others are slow. With
`@pytest.mark.sampled(n, first)` case `first` is among them, for which a cheap one is chosen; else case 0 is."""

import collections
import contextlib
import os
import pathlib
import shutil
import signal
import tempfile

import properties
import pytest
from hypothesis import settings

# A process per processor runs tests: threads of numpy's matmuls would wait for each other, most of them while the
# matmuls of a few thousand elements that tests have are done. Read when numpy is imported, by which it is not yet.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

PREFIX = "attn-opt-test-"


def _remove_left() -> None:
    """Removes what runs left that were killed: their folders' names tell the processes that made them."""
    for left in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        with contextlib.suppress(ValueError, PermissionError):
            try:
                os.kill(int(left.name.removeprefix(PREFIX).partition("-")[0]), 0)
            except ProcessLookupError:
                shutil.rmtree(left, ignore_errors=True)


settings.register_profile("repeatable", derandomize=True, print_blob=True)
settings.register_profile("fuzz", derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

if "PYTEST_XDIST_WORKER" not in os.environ:
    _remove_left()
    _folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-")
    os.environ["ATTN_OPT_CACHE_DIR"] = os.environ["TMPDIR"] = _folder.name
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # compiling our sources is a third of what a tool's process takes
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(_folder.name, "bytecode")
    # A request to end is an interrupt, after which the folder is removed; an exit would be a failure of the test that
    # runs, and the next one would follow.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "not slow":
        properties.draw_a_part()


GOLDEN = (5**0.5 - 1) / 2  # multiples of it fill the unit interval evenly, and follow no loop of parameters


@pytest.hookimpl(tryfirst=True)  # before slow ones are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    count: collections.Counter[str] = collections.Counter()
    for item in items:
        share = item.get_closest_marker("sampled")
        if share is not None and item.get_closest_marker("slow") is None:
            test = item.nodeid.partition("[")[0]
            n, first = (*share.args, 0)[:2]
            if (count[test] - first) * GOLDEN % 1 >= 1 / n:
                item.add_marker("slow")
            count[test] += 1
