"""attn-bench: options with the meaning of example_fmha_fwd's, measurements, errors."""

import importlib.util
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest
from attn_opt.compiler.bench import gpu, peers, roofs, table
from attn_opt.compiler.bench.measure import Measured, Result
from attn_opt.compiler.bench.worker import timed
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import cuda_driver
from attn_opt.compiler.tools import attn_bench
from attn_opt.compiler.tools.attn_bench_options import parse_options
from attn_opt.dialects.diagnostic import DiagnosedError
from fake_cuda import fake_driver

SMALL = ["-b=1", "-h=2", "-s=40", "-d=16", "-prec=fp32", "--rounds=1", "--seconds=0.01", "--threads=1"]


def graph(*arguments):
    ((_, found),) = parse_options(arguments).cases
    return found


def test_defaults_are_those_of_the_executable():
    found = graph()
    assert found == Attention(batch=2, heads=8, queries=3328, keys=3328, head_size=128, element="f16")
    options = parse_options([])
    assert options.measuring.validate and options.measuring.init == "uniform"


@pytest.mark.parametrize("spelling", [["-b=3"], ["-b", "3"], ["--b", "3"], ["--b=3"]])
def test_spellings(spelling):
    assert graph(*spelling).batch == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-h=8", "-h_k=2"], {"heads": 8, "heads_kv": 2, "kv": 2}),
        (["-s=5"], {"queries": 5, "keys": 5}),
        (["-s=5", "-s_k=-1"], {"keys": 5}),
        (["-s", "5", "-s_k", "9"], {"queries": 5, "keys": 9}),
        (["-d=32", "-d_v=0"], {"head_size": 32, "d_v": 32}),
        (["-d=32", "-d_v=8"], {"d_v": 8}),
        (["-scale=0", "-d=64"], {"factor": 0.125}),
        (["-scale=2.5"], {"factor": 2.5}),
        (["-iperm=0"], {"input_layout": "bshd", "output_layout": "bhsd"}),
        (["-operm=0"], {"input_layout": "bhsd", "output_layout": "bshd"}),
        (["-iperm=0", "-vlayout=c"], {"value_layout": "bdhs"}),
        (["-vlayout=c"], {"value_layout": "bhds"}),
        (["-bias=1", "-lse=1"], {"bias": "bhqk", "lse": True}),
        (["-prec=bf16"], {"element": "bf16"}),
        (["-prec=fp64"], {"element": "f64"}),
        (["-s=4", "-s_k=9", "-mask=0"], {"window": (None, None)}),
        (["-s=4", "-s_k=9", "-mask=1"], {"window": (None, 0)}),
        (["-s=4", "-s_k=9", "-mask=2"], {"window": (None, 0), "bottom_right": True}),
        (["-s=4", "-s_k=9", "-mask=t:2,1"], {"window": (-2, 1)}),
        (["-s=4", "-s_k=9", "-mask", "b:2,1"], {"window": (-2, 1), "bottom_right": True}),
        (["-s=4", "-s_k=9", "-mask=b:-1,0"], {"window": (None, 0), "bottom_right": True}),
        (["-mask=xt:7"], {"window": (-3, 3), "bottom_right": False}),
        (["-mask=xb:-1"], {"window": (None, 0), "bottom_right": True}),
        (["-s=4", "-s_k=9", "-mask=g:3,2"], {"window": (-2, 1)}),
        (["--softcap=30", "--alibi"], {"softcap": 30.0, "alibi": True}),
        (["-bias=e"], {"bias": "qk"}),
        (["-bias=e:1"], {"bias": "hqk"}),
        (["-bias=a"], {"bias": "", "alibi": True}),
        (["-scale_s=0.25"], {"factor": 0.25}),
        (["--packed=3hd"], {"packed": "3hd", "input_layout": "bshd"}),
        (["-b=3", "--lengths=5"], {"lengths": (5, 5, 5)}),
        (["-b=2", "--lengths=5,9"], {"lengths": (5, 9)}),
        (["--bool-mask=bk", "--dynamic"], {"mask": "bk", "dynamic": True}),
        (["-prec=fp8", "-squant=0"], {"element": "f8E4M3FN", "output": "", "scale_p": 1.0, "scale_o": 1.0}),
        (["-prec=bf8fp16", "-vlayout=c"], {"element": "f8E5M2", "output": "f16", "values_transposed": True}),
        (["-prec=fp8", "-d=64"], {"factor": (16 / 448) ** 2 / 8, "scale_p": 448.0, "scale_o": 1 / 448}),
        (["-prec=fp8", "-range_p=2", "-range_v=8", "-range_o=4"], {"scale_p": 224.0, "scale_o": 2 / 448 * 8 / 4}),
        (["-prec=fp8fp32", "-range_v=8", "-scale=2", "-range_q=1"], {"scale_o": 8 / 448**2, "factor": 32 / 448**2}),
        (["-mode=1", "-b=2", "-s=5,9"], {"groups": ((5, 5), (9, 9)), "batch": 1, "queries": 14}),
        (["-mode=1", "-b=2", "-s=5,9", "-s_k=7,0003"], {"groups": ((5, 7), (9, 3)), "keys": 10}),
    ],
)
def test_meanings(arguments, expected):
    found = graph(*arguments)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-prec=int4"], "expects fp16, bf16, fp32, fp64, fp8 or bf8, but found 'int4'"),
        (["-s=4,5"], "argument -s: several lengths are of -mode=1"),
        (["-mode=1", "-b=3", "-s=4,5"], "argument -s: expects one length or 3, one for each sequence, but found 2"),
        (["-mode=1", "-bias=1"], "group mode has no bias for each score; use -bias=a, or -mode=0"),
        (["-mode=1", "--lengths=3"], "in group mode keys have the lengths of -s_k"),
        (["--packed=3hd", "-iperm=1"], "packed inputs have the layout b s h d"),
        (["--packed=3hd", "-s=4", "-s_k=5"], "packed Q, K and V are of one length"),
        (["--lengths=4000"], "lengths must be 2 numbers from 0 to 3328"),
        (["--bool-mask=x"], "expects some of the letters b, h, q and k, but found 'x'"),
        (["-range_p=1"], "argument -range_p: ranges are of static quantization, -squant=1 with fp8 or bf8"),
        (["-prec=fp8", "-squant=0", "-range_q=2"], "argument -range_q: ranges are of static quantization"),
        (["-prec=fp8", "-range_q=0"], "expects a positive number, but found '0'"),
        (["-squant=1"], "static quantization is of fp8 and bf8, not of fp16"),
        (["-init=3", "-prec=bf16"], "argument -init: 3 fills the range of fp8 or bf8, not that of bf16"),
        (["-timer=gpu"], "the clock of a GPU times what runs on one"),
        (["-init=4"], "expects 0 or ui or 1"),
        (["-mask=x:1,2"], "expects 0, 1, 2, t:l,r, b:l,r, xt:n, xb:n or g:y,x, but found 'x:1,2'"),
        (["-mask=t:1"], "expects 0, 1, 2, t:l,r"),
        (
            ["-mask=t:9999999999,0"],
            "a window ends at most 2^31 keys from a query, but found 9999999999; give it no limit",
        ),
        (["-mask=g:1,99999999999999999999"], "a window ends at most 2^31 keys from a query"),
        (["-h=8", "-h_k=3"], "heads must be a multiple of heads_kv"),
        (["-s=0"], "expects a positive integer, but found '0'"),
        (["-v=2"], "expects 0 or 1, but found '2'"),
        (["-scale=nan"], "expects a number, but found 'nan'"),
        (["--compare=tf"], "knows no 'tf'; the peers are: torch, onnxruntime, jax, iree"),
        (["--sweep", "q=1"], "expects NAME=VALUE,… with NAME of mode, b, h"),
        (["--sweep", "s=1,x"], "expects a positive integer, but found 'x'"),
        (["--plot=a.gif"], "expects a file named .png, .svg or .pdf"),
        (["--json=/nowhere/a.json"], "/nowhere/a.json cannot be written: there is no such folder"),
        (["--target=nvidia", "--compare=jax"], "knows no 'jax' for the target nvidia; the peers are: torch-cudnn"),
        (["--compare=flex"], "knows no 'flex' for the target cpu; the peers are: torch, onnxruntime"),
        (["--nope"], "unrecognized arguments: --nope"),
    ],
)
def test_errors(arguments, message, capsys):
    with pytest.raises(DiagnosedError, match=re.escape(message)):
        parse_options(arguments)
    assert attn_bench.main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("attn-bench: error: ") and message in error and "Traceback" not in error


def test_what_a_gpu_is_timed_with(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with fake_driver():
        assert attn_bench.main(["--target=nvidia", "-s=64"]) == 1
    assert "PyTorch, with which GPUs are timed, is not installed: pip install" in capsys.readouterr().err
    none = cuda_driver.CudaError("no NVIDIA GPU is on this machine")
    monkeypatch.setattr(cuda_driver, "driver", mock.Mock(side_effect=none))
    assert attn_bench.main(["--target=nvidia", "-s=64"]) == 1
    assert "attn-bench: error: no NVIDIA GPU is on this machine" in capsys.readouterr().err


def test_lengths_of_sequences_are_made_up():
    found = graph("-mode=1", "-b=5", "-s=100", "-seed=3")
    q = [m for m, _ in found.groups]
    assert sum(q) == 500 and len(set(q)) > 1 and min(q) > 0 and found.groups == tuple((m, m) for m in q)
    assert found == graph("-mode=1", "-b=5", "-s=100", "-seed=3") != graph("-mode=1", "-b=5", "-s=100", "-seed=4")
    assert graph("-mode=1", "-b=9", "-s=1").groups == ((1, 1),) * 9


@pytest.mark.sampled(7, 4)
@pytest.mark.parametrize(
    "arguments",
    [
        ["-mode=1", "-b=3", "-s=10,3,30", "-mask=2", "-h_k=1"],
        ["--packed=h3d", "-bias=a", "-iperm=0", "-operm=0"],
        ["-bias=e:1", "--bool-mask=qk", "--dynamic", "-init=nf", "-warmup=0", "-repeat=2"],
        ["-prec=fp8", "-vlayout=c", "-bias=1", "-init=ufq", "-lse=1"],
        ["-prec=bf8fp16", "-squant=0", "-mask=1"],
    ],
)
def test_cases_run(arguments, capsys):
    assert attn_bench.main([*SMALL, *arguments, "--compare=torch"]) == 0
    assert re.search(r"^attn-opt .* PASS$", capsys.readouterr().out, re.M)


@pytest.mark.slow
def test_what_is_waited_for_and_what_the_kernel_is(capsys):
    assert attn_bench.main([*SMALL, "--latency", "-kname=1", "-v=0"]) == 0
    out = capsys.readouterr().out
    time = r"[\d.]+ [mµ]?s"
    said = rf"^compiling {time}, {time} more for .*; from the cache {time}; importing {time}; a call .* {time}$"
    assert re.search(said, out, re.M)
    assert "attention for cpu: 1 attention found and fused" in out


def test_sweeps_are_all_combinations():
    options = parse_options(["-d=8", "-h=2", "--sweep", "s=16,32", "mask=0;t:2,0"])
    assert [label for label, _ in options.cases] == ["s=16 mask=0", "s=16 mask=t:2,0", "s=32 mask=0", "s=32 mask=t:2,0"]
    assert [(g.queries, g.window) for _, g in options.cases[1:3]] == [(16, (-2, 0)), (32, (None, None))]
    assert len(parse_options(["--sweep"]).cases) == 8


def test_help(capsys):
    for option in ("-?", "--help"):
        assert attn_bench.main([option]) == 0
        assert "h_k" in capsys.readouterr().out


def test_a_case_with_all_that_is_measured(capsys, tmp_path):
    path = tmp_path / "out.json"
    assert attn_bench.main([*SMALL, "-lse=1", "--peak", "--compare=torch", f"--json={path}"]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    assert re.search(r"^b 1, h 2, s 40, d 16, f32, lse: .* GFLOP, .* MB; cpu, 1 thread$", out, re.M)
    assert re.search(r"this machine: f32 FMA \d+ GFLOP/s, reading [\d.]+ GB/s; limited by (compute|memory)", out)
    assert re.search(r"^attn-opt +[\d.]+ [mµ]?s +[\d.]+ +[\d.]+ +\d+% +\S+ PASS$", out, re.M)
    assert re.search(r"^torch ", out, re.M)  # timed or skipped
    (case,) = json.loads(path.read_text())["cases"]
    ours = case["results"][0]
    assert ours["passed"] and 0 < ours["seconds"] < 1 and len(ours["times"]) == 1
    assert 0 < ours["fraction_of_roof"] < 2 and case["peaks_gflops"]["f32 FMA"] > 0 and case["checked_queries"] == 40


@pytest.mark.slow
def test_a_sweep_on_two_threads(capsys):
    arguments = [*SMALL, "--threads=2", "-v=0", "--sweep", "s=16,32"]
    assert attn_bench.main(arguments) == 0
    out = capsys.readouterr().out
    assert re.search(r"^s=16 .*not checked$", out, re.M) and re.search(r"^s=32 ", out, re.M)
    assert attn_bench.main([*arguments, "--json=-"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cases"]) == 2


def test_wrong_results_are_told(capsys, monkeypatch):
    monkeypatch.setattr("attn_opt.compiler.bench.measure.TOLERANCES", {"f32": 0.0})
    assert attn_bench.main(SMALL) == 1
    assert "FAIL" in capsys.readouterr().out


@pytest.mark.slow
def test_a_peer_that_fails_does_not_end_the_run(capsys):
    """No peer takes f64 and a softcap; what is not installed is skipped as well."""
    names = list(peers.PEERS)
    assert attn_bench.main([*SMALL, "-prec=fp64", "--softcap=5", f"--compare={','.join(names)}"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^{name} +(skipped|FAILED): ", out, re.M) for name in names)


def test_what_does_not_fit_into_memory_is_not_begun(capsys):
    assert attn_bench.main([*SMALL, "-s=99999999999"]) == 1
    assert re.search(r"error: arguments and results take \S+ GB, more than the \S+ GB", capsys.readouterr().err)


def test_plots(tmp_path, capsys):
    path = tmp_path / "out.svg"
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert attn_bench.main([*SMALL, f"--plot={path}"]) == 1
        assert "--plot needs matplotlib: pip install 'attn-opt[plot]'" in capsys.readouterr().err
        return
    assert attn_bench.main([*SMALL, f"--plot={path}"]) == 0
    assert "<svg" in path.read_text()


@pytest.mark.parametrize("kind", dict.fromkeys((*roofs.kinds("bf16"), "f64 FMA")))
@pytest.mark.parametrize("threads", [1, 2])
def test_peaks_are_of_the_order_of_what_computers_do(kind, threads):
    call, flops = roofs.peak(kind, threads)
    (seconds, *_) = timed(call, 0.0)
    assert 1e8 < flops / seconds < 1e15


def test_reading_reads_all():
    call, size = roofs.reading(1 << 20, 2)
    assert 1 << 20 <= size <= 1 << 21
    (seconds, *_) = timed(call, 0.0)
    assert 1e7 < size / seconds < 1e14


def test_ratios_are_medians_of_rounds():
    results = [Result("attn-opt", [1.0, 2.0, 1.0]), Result("torch", [2.0, 2.0, 3.0]), Result("jax", [], skipped="no")]
    measured = Measured(Attention(), 1, results, {"f32 FMA": 1e9}, 1e9, None)
    assert measured.ratio(results[1]) == 2.0 and measured.ratio(results[2]) is None
    assert table.markdown_head("cpu", ["torch", "jax"])[0] == "| case | GFLOP/s | of roof | × torch | × jax |"
    line = table.markdown_row("a case", measured, ["torch", "jax"])
    assert line.startswith("| a case | 0 | ") and line.endswith("| 2.00 | – |")


def test_on_a_gpu_no_one_follows_the_same_one_in_all_rounds():
    names = ["attn-opt", "torch-cudnn", "flash-attn-4", "copy", "f16 matmul"]
    found = gpu.orders(names, 5)
    assert all(sorted(order) == sorted(names) for order in found) and found == gpu.orders(names, 5)
    for some, rounds in ((names[:2], 2), (names, 2 * len(names)), ([*names, "another"], len(names) + 1)):
        pairs = [pair for order in gpu.orders(some, rounds) for pair in itertools.pairwise(order)]
        assert {pairs.count(pair) for pair in itertools.permutations(some, 2)} == {rounds // len(some)}
    for name in names:
        before = {order[order.index(name) - 1] if order.index(name) else None for order in found}
        assert len(before) > 1


def test_a_summary_counts_each_peer_and_the_best_of_each_case():
    lines = table.summary([{"torch": 2.0, "jax": 0.5}, {"torch": 8.0}])
    assert lines == [
        "2 cases against torch: geometric mean 4.00×, least 2.00×",
        "1 cases against jax: geometric mean 0.50×, least 0.50×",
        "2 cases against the best peer of each case: geometric mean 2.00×, least 0.50×",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_end_leaves_nothing(number, tmp_path):
    command = [sys.executable, "-m", "attn_opt.compiler.tools.attn_bench", "-s=2048", "-h=8", "--threads=1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "ATTN_OPT_CACHE": "0"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as tool:
        while not any(tmp_path.iterdir()):
            assert tool.poll() is None
            time.sleep(0.01)
        time.sleep(0.1)  # who made the folder knows of it by now
        (os.kill if number == signal.SIGTERM else os.killpg)(tool.pid, number)  # the terminal's goes to all of them
        assert tool.wait(timeout=60) == 128 + number
        assert not list(tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.killpg(tool.pid, 0)
