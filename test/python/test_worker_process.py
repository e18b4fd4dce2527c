"""Processes that do jobs: answers, crashes, hangs; several at once; compiling in them."""

import os
import textwrap

import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.precompile import Job, precompile
from attn_opt.compiler.worker_process import WorkerProcess, ask_all

MODULE = """
import os, sys, time
from attn_opt.compiler.worker_process import serve

def answer(job):
    if job.get("crash"):
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    time.sleep(job.get("sleep", 0))
    print("this is no answer")
    return {"twice": 2 * job["x"], "process": os.getpid(), "variable": os.environ.get("VARIABLE")}

serve(answer)
"""

ADD = """
func.func @add(%a: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %e = tensor.empty() : tensor<2x5xf32>
  %r = linalg.add ins(%a, %a : tensor<2x5xf32>, tensor<2x5xf32>) outs(%e : tensor<2x5xf32>) -> tensor<2x5xf32>
  return %r : tensor<2x5xf32>
}"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "twice_of_it.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    return "twice_of_it"


def test_one_process_answers_until_it_ends(module):
    with WorkerProcess(module, {"VARIABLE": "value"}) as worker:
        first, second = worker.ask({"x": 4}), worker.ask({"x": 5})
        assert (first["twice"], second["twice"], first["variable"]) == (8, 10, "value")
        assert first["process"] == second["process"] != os.getpid()
        assert worker.ask({"crash": 1}) == {"failed": "its process ended with status 3: out of luck"}
        assert not worker.alive
        assert worker.ask({"x": 6})["twice"] == 12  # in another process
    assert not worker.alive


def test_what_takes_too_long_is_ended(module):
    with WorkerProcess(module) as worker:
        assert worker.ask({"x": 1, "sleep": 60}, timeout=0.5) == {"failed": "took longer than 0 s"}
        assert worker.ask({"x": 1}, timeout=60)["twice"] == 2


def test_several_at_once_answer_all(module):
    told = []
    jobs = [{"x": x} if x != 3 else {"crash": 1} for x in range(8)]
    answers = ask_all(module, jobs, processes=3, done=lambda number, answer: told.append(number))
    assert [a.get("twice") for a in answers] == [0, 2, 4, None, 8, 10, 12, 14]
    assert sorted(told) == list(range(8)) and "status 3" in answers[3]["failed"]


def test_graphs_are_compiled_into_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE", "1")
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path))
    wrong = ADD.replace("%a, %a :", "%a, %b :")
    failures = precompile([Job(ADD), Job(wrong), Job(ADD, "cpu", {"threads": 1})], processes=2)
    assert failures[0] is None and failures[2] is None and "undeclared" in failures[1]
    monkeypatch.setattr("attn_opt.compiler.lowering.lower", None)  # nothing is left to do
    assert compile(ADD).name == "add"
