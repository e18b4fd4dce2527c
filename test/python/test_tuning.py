"""Schedules chosen by measuring: what is tried, what is skipped and why, what is kept on disk."""

import json
import subprocess
import sys

import numpy as np
import pytest
from attn_opt.compiler import CompileError, cache, compile
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.options import Options
from attn_opt.compiler.tools import attn_bench
from attn_opt.compiler.tuning import search, space, worker
from fake_cuda import fake_driver

GRAPH = Attention(batch=1, heads=2, queries=192, keys=160, head_size=16, element="f32")
HOPPER = Attention(batch=16, heads=16, queries=4096, keys=4096, head_size=128, element="f16")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE", "1")
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path))
    cache.forget()
    yield tmp_path
    cache.forget()


class Machine:
    """Stands for the process that measures: a schedule takes as long as `seconds` says, or is answered otherwise."""

    asked: list
    seconds = staticmethod(lambda schedule: 1.0)

    def __init__(self, module, environment=None):
        self.alive, self.entered = False, {}

    def ask(self, job, timeout=None):
        self.asked.append(job)
        self.alive = True
        if "text" in job:
            return {}
        if "round" in job:
            return {"times": [self.seconds(self.entered[number]) for number in job["round"]]}
        found = self.seconds(job["schedule"])
        if isinstance(found, dict):
            self.alive = "failed" not in found
            return found
        self.entered[job["number"]] = job["schedule"]
        return {"seconds": found}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def machine(folder, monkeypatch):
    Machine.asked = []
    monkeypatch.setattr(Machine, "seconds", staticmethod(lambda schedule: 1.0))
    monkeypatch.setattr(search, "WorkerProcess", Machine)
    monkeypatch.setattr(search, "precompile", lambda jobs, environment: [None] * len(jobs))
    return Machine


@pytest.mark.slow
def test_a_schedule_is_found_on_this_cpu(folder):
    """All of it, with processes: the kernel is right, says what was tried, and is not searched for again."""
    inputs = GRAPH.inputs()
    kernel = compile(GRAPH.text(), threads=1, autotune=True)
    np.testing.assert_allclose(kernel(*inputs), compile(GRAPH.text(), threads=1)(*inputs), atol=1e-5)
    lines = kernel.explain().split("schedules tried on ")[1].split("\n")
    assert "1 thread:" in lines[0] and sum("chosen" in line for line in lines) == 1
    assert any(line.startswith("  by rule ") for line in lines) and any("tile sizes" in line for line in lines)
    (kept,) = folder.glob("*.schedule")
    found = json.loads(kept.read_bytes())
    assert len(found["trials"]) > 5 and found["trials"][0]["schedule"] == {}
    code = f"""
from attn_opt.compiler import compile
from attn_opt.compiler.tuning import search
search._Search = None
print(compile({GRAPH.text()!r}, threads=1, autotune=True).explain().count("chosen"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr


def test_the_fastest_is_taken(machine, monkeypatch):
    monkeypatch.setattr(machine, "seconds", staticmethod(lambda s: 0.5 if s.get("tile_sizes", [0])[-1] == 32 else 1.0))
    kernel = compile(GRAPH.text(), threads=1, autotune=True)
    (tiling,) = (e["details"]["tiling"] for e in kernel.record["entries"] if "tiling" in e["details"])
    assert tiling["sizes"][tiling["axes"].index("keys")] == 32


def test_what_is_hardly_faster_is_not(machine, monkeypatch):
    monkeypatch.setattr(machine, "seconds", staticmethod(lambda s: 0.99 if s else 1.0))
    assert "by rule" in next(
        line for line in compile(GRAPH.text(), threads=1, autotune=True).explain().split("\n") if "chosen" in line
    )


def test_what_fails_is_skipped_and_told(machine, monkeypatch):
    """A schedule that is wrong, one that ends the process, one that cannot be compiled."""
    monkeypatch.setattr(space, "AROUND_QUERIES", (1,))
    monkeypatch.setattr(space, "AROUND_KEYS", (0.25, 0.5, 1, 2))
    record = compile(GRAPH.text(), threads=1).record
    (tried,) = space.steps(record, "cpu", Options(threads=1))
    wrong, ended, refused = (one["tile_sizes"] for one in tried)
    answers = {
        str(wrong): {"skipped": "wrong: differs from the rule's result by 1.0e+00"},
        str(ended): {"failed": "its process ended with status -11"},
    }

    def precompile(jobs, environment):
        return ["no room" if job.options["tile_sizes"] == refused else None for job in jobs]

    monkeypatch.setattr(machine, "seconds", staticmethod(lambda s: answers.get(str(s.get("tile_sizes")), 1.0)))
    monkeypatch.setattr(search, "precompile", precompile)
    lines = compile(GRAPH.text(), threads=1, autotune=True).explain().split("\n")
    skipped = [line.partition("skipped: ")[2] for line in lines if "skipped:" in line]
    assert skipped == [
        "wrong: differs from the rule's result by 1.0e+00",
        "its process ended with status -11",
        "no room",
    ]
    assert any("by rule" in line and "chosen" in line for line in lines)


def test_a_process_that_ended_is_started_again(machine, monkeypatch):
    monkeypatch.setattr(space, "AROUND_QUERIES", (0.5, 1))
    monkeypatch.setattr(space, "AROUND_KEYS", (1,))
    monkeypatch.setattr(space, "PARTS", (1, 4))
    ended = {"failed": "took longer than 60 s"}
    monkeypatch.setattr(machine, "seconds", staticmethod(lambda s: ended if "tile_sizes" in s else 1.0))
    compile(GRAPH.text(), threads=2, autotune=True)
    assert sum("text" in job for job in machine.asked) == 2


def test_options_that_are_given_stay(machine):
    compile(GRAPH.text(), threads=1, tile_sizes=(1, 1, 32, 0, 32), autotune=True)
    assert [job["schedule"] for job in machine.asked if "schedule" in job] == [{}]
    assert machine.asked[0]["options"] == {"threads": 1, "tile_sizes": [1, 1, 32, 0, 32]}


@pytest.mark.slow
def test_what_is_tried_on_hopper():
    """Tiles, with and without the copy engine; then its stages and the maximum; keys are split where tasks are few."""
    options = Options(arch="sm_90a")
    record = compile(HOPPER.text(), target="nvidia", arch="sm_90a").record
    tiles, staged = space.steps(record, "nvidia", options)
    assert {len(one["tile_sizes"]) for one in tiles} == {5}
    assert any(one.get("copy_engine") is False for one in tiles) and not any("split_keys" in one for one in tiles)
    assert staged == [{"keep_maximum": False}, {"stages": 2}, {"stages": 3}]
    few = compile(Attention(batch=1, heads=2, queries=1, keys=8192, head_size=64, element="f16").text(),
                  target="nvidia", arch="sm_90a").record  # fmt: skip
    *_, parts = space.steps(few, "nvidia", options)
    assert {"split_keys": 8} in parts
    record = compile(HOPPER.text(), target="nvidia", arch="sm_80").record
    on_any = list(space.steps(record, "nvidia", Options(arch="sm_80")))
    assert len(on_any) == 1 and not any("copy_engine" in one for one in on_any[0])


def test_without_a_gpu_it_is_an_error():
    try:
        from attn_opt.compiler.runtime.cuda_driver import driver

        driver()
        pytest.skip("there is a GPU")
    except Exception as missing:
        if isinstance(missing, pytest.skip.Exception):
            raise
    with pytest.raises(CompileError, match="autotune measures on a GPU: no NVIDIA driver"):
        compile(HOPPER.text(), target="nvidia", autotune=True)


def test_work_that_arguments_say_needs_them(folder):
    graph = Attention(batch=1, heads=2, queries=64, keys=64, head_size=16, element="f32", dynamic=True)
    with pytest.raises(CompileError, match=r"autotune needs example_args: argument 0 is .* whose sizes say"):
        compile(graph.text(), threads=1, autotune=True)


def test_arguments_reach_the_process(folder, monkeypatch):
    graph = Attention(batch=2, heads=2, queries=64, keys=64, head_size=16, element="bf16", lengths=(5, 64))
    inputs = graph.inputs()
    worker.write_arguments(str(folder), inputs)
    contest = worker.Contest(graph.text(), "cpu", {"threads": 1}, str(folder))
    for found, given in zip(contest.inputs, inputs, strict=True):
        np.testing.assert_array_equal(found, given)
    assert contest.enter(0, {})["seconds"] > 0
    assert contest.enter(1, {"tile_sizes": [1, 1, 16, 0, 16], "tile_interchange": [0, 1, 2, 3, 4]})["error"] < 1e-2
    assert len(contest.round([0, 1], 0.01)["times"]) == 2
    contest.expected = [found + 1 for found in contest.expected]
    assert "wrong: differs from the rule's result" in contest.enter(2, {"split_keys": 1})["skipped"]


def test_gpu_kernels_are_run_on_results_without_numbers(folder):
    graph = Attention(batch=1, heads=2, queries=70, keys=90, head_size=64, element="f16")
    with fake_driver() as fake:  # which computes nothing: all results stay NaN, and are the same
        contest = worker.Contest(graph.text(), "nvidia", {"arch": "sm_80"}, None)
        assert "seconds" in contest.enter(0, {}) and np.isnan(contest.expected[0]).all()
        before = len(fake.launches)
        assert contest.round([0], 0.0)["times"] == [0.0] and len(fake.launches) > before
        assert fake.calls["cuFuncGetAttribute"] == 1


@pytest.mark.slow
def test_the_command_prints_what_was_tried(folder, capsys):
    arguments = ["-b=1", "-h=2", "-s=64", "-d=16", "-prec=fp32", "--rounds=1", "--seconds=0.01", "--threads=1"]
    assert attn_bench.main([*arguments, "--autotune"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("schedules tried on ") and "by rule" in out and "PASS" in out


def test_options_of_the_command_reach_the_kernel(capsys):
    arguments = ["-b=1", "-h=2", "-s=64", "-d=16", "-prec=fp32", "--rounds=1", "--seconds=0.01", "--threads=1"]
    assert attn_bench.main([*arguments, "-kname=1", "--options", "tile-sizes=1,1,16,0,32"]) == 0
    assert "queries  64 by 16" in capsys.readouterr().out
    assert attn_bench.main([*arguments, "--options", "tile-size=1"]) == 1
    assert "compile has no option 'tile-size'; did you mean 'tile-sizes'?" in capsys.readouterr().err
