"""The command attn-run: what a newcomer sees, and one clear message for every mistake."""

import contextlib
import io
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import cache
from attn_opt.compiler.tools.attn_run import main

ROOT = pathlib.Path(__file__).parents[2]
ATTENTION = ROOT / "examples" / "attention.mlir"
CAUSAL = ROOT / "examples" / "causal_attention.mlir"
DOUBLE = """
func.func @double(%a: tensor<3x4xKIND>) -> tensor<3x4xKIND> {
  %0 = linalg.add ins(%a, %a : tensor<3x4xKIND>, tensor<3x4xKIND>) outs(%a : tensor<3x4xKIND>) -> tensor<3x4xKIND>
  return %0 : tensor<3x4xKIND>
}
"""


COMMAND = [sys.executable, "-m", "attn_opt.compiler.tools.attn_run"]


def as_process(*arguments):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def attn_run(*arguments, stdin=""):
    """The same in this process, which has imported all that it needs."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = main(list(map(str, arguments)))
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def test_why_nothing_was_fused(tmp_path):
    """The reason is a note of the warning, at the matmul in which the softmax was expected."""
    near_misses = (ROOT / "test" / "transforms" / "raise-attention" / "near-misses.mlir").read_text()
    (tmp_path / "near.mlir").write_text(near_misses.split("// -----")[0])
    done = attn_run(tmp_path / "near.mlir")
    assert done.returncode == 0
    assert re.search(
        r"warning: no attention was found.*\n.*near.mlir:\d+:\d+: note: not raised to attention: ", done.stderr
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.mlir")), ids=lambda path: path.stem)
def test_examples_run_and_pass(example):
    done = as_process(example)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(r"^PASS$", done.stdout, re.MULTILINE)
    assert "seed 0" in done.stdout


def test_warnings_are_told_as_errors_are(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ATTN_OPT_CACHE_DIR", str(tmp_path / "file"))
    cache.forget()  # what other tests have compiled in this process would not be written
    done = attn_run("-", stdin=DOUBLE.replace("KIND", "f64"))
    assert done.returncode == 0, done.stderr
    assert f"attn-run: warning: kernels are not cached in {tmp_path / 'file'}: File exists\n" in done.stderr


def test_bench_prints_the_time_and_the_speed():
    done = as_process(ATTENTION, "--bench", "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^time +[0-9.]+ m?s a call \(median of \d+", done.stdout, re.MULTILINE)
    assert re.search(r"^speed +[0-9.]+ GFLOP/s", done.stdout, re.MULTILINE)


def test_stages_are_printed():
    done = attn_run(ATTENTION, "--print-ir", "graph", "--print-ir", "fused", "--no-check")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("// graph //") < done.stdout.index("// fused //")
    assert "scf.for" in done.stdout
    assert "PASS" not in done.stdout


def test_not_fused_and_fused_by_hand_and_from_stdin():
    assert attn_run(ATTENTION, "--fuse", "none").returncode == 0
    done = attn_run(ATTENTION, "--tile-sizes", "16,0,24", "--tile-interchange", "2,1,0", "--print-ir", "fused")
    assert done.returncode == 0, done.stderr
    assert "step %c24" in done.stdout
    done = attn_run("-", stdin=DOUBLE.replace("KIND", "f32"))
    assert done.returncode == 0, done.stderr


def test_dynamic_sizes_are_made_up_or_given():
    done = attn_run(CAUSAL)
    assert "67x48xfloat32, 45x48xfloat32, 45x48xfloat32" in done.stdout
    done = attn_run(CAUSAL, "--dim", "0.0=9", "--dim", "2.0=31")
    assert "9x48xfloat32, 31x48xfloat32, 31x48xfloat32" in done.stdout
    assert done.returncode == 0, done.stderr
    assert "(33x48xfloat32, 33x48xfloat32" in attn_run(CAUSAL, "--dim", "33").stdout


KINDS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32}
KINDS |= {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_from_and_to_files(tmp_path, kind):
    dtype = KINDS[kind]
    array = np.arange(12).reshape(3, 4).astype(dtype)
    is_numpys = kind not in ("bf16", "f8E4M3FN", "f8E5M2")
    stored = array if is_numpys else array.view(f"u{array.itemsize}")
    source, given, result = tmp_path / "double.mlir", tmp_path / "a.npy", tmp_path / "o.npy"
    source.write_text(DOUBLE.replace("KIND", kind) if kind != "i32" else DOUBLE.replace("KIND", "i32"))
    np.save(given, stored)
    done = attn_run(source, "--inputs", given, "--outputs", result)
    assert done.returncode == 0, done.stderr
    found = np.load(result)
    if not is_numpys:
        found = found.view(dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array + array)


def test_what_numpy_cannot_read_of_8_bits(tmp_path):
    source, given = tmp_path / "double.mlir", tmp_path / "a.npy"
    source.write_text(DOUBLE.replace("KIND", "f8E5M2"))
    np.save(given, np.ones((3, 4), ml_dtypes.float8_e5m2))
    done = attn_run(source, "--inputs", given)
    assert done.returncode == 1
    assert "is no array in numpy's .npy format; save the bits of floats of 8 bits, array.view('uint8')" in done.stderr


def test_the_same_seed_gives_the_same_result(tmp_path):
    files = [tmp_path / name for name in ("a.npy", "b.npy", "c.npy")]
    for file, seed in zip(files, (1, 1, 2), strict=True):
        assert attn_run(ATTENTION, "--seed", seed, "--outputs", file, "--no-check").returncode == 0
    first, again, other = map(np.load, files)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_failing_check_exits_with_1():
    done = as_process(ATTENTION, "--tolerance", "0")
    assert done.returncode == 1
    assert "FAIL: the results differ" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "attn-run: error: the following arguments are required: INPUT.mlir"),
        (["missing.mlir"], "missing.mlir: error: cannot be read: no such file or directory"),
        ([ROOT], "error: cannot be read: is a directory"),
        ([ROOT / "Makefile"], "Makefile:1:1: error: "),
        ([ATTENTION, "--nope"], "unrecognized arguments: --nope"),
        ([ATTENTION, "--target", "abacus"], "invalid choice: 'abacus'"),
        ([ATTENTION, "--entry", "f"], "no function 'f' with a body; there are: attention"),
        ([ATTENTION, "--print-ir", "nope"], "no stage 'nope'; the stages are: graph"),
        ([ATTENTION, "--tile-sizes", "4,x"], "expects integers separated by commas, but found '4,x'"),
        ([ATTENTION, "--tile-sizes", "1,2,3,4"], "attention.mlir:32:8: error: 4 tile sizes given"),
        ([ATTENTION, "--tile-sizes", "4,0,8", "--tile-interchange", "0,0,1"], "must be a permutation"),
        ([ATTENTION, "--threads", "0"], "expects a positive integer, but found '0'"),
        ([ATTENTION, "--threads", "9" * 20], "threads must be a positive integer, at most "),
        ([ATTENTION, "--inputs", "a.npy"], "takes 3 arguments, but --inputs has 1"),
        ([ATTENTION, "--inputs", "a.npy", "b.npy", "c.npy"], "a.npy: error: cannot be read: no such file"),
        ([ATTENTION, "--inputs", ATTENTION, ATTENTION, ATTENTION], "is no array in numpy's .npy format"),
        ([ATTENTION, "--outputs", "a.npy", "b.npy"], "has 1 results, but --outputs has 2"),
        ([ATTENTION, "--outputs", "/nowhere/o.npy"], "/nowhere/o.npy: error: cannot be written"),
        ([ATTENTION, "--dim", "7.0=3"], "has no such dimension"),
        ([CAUSAL, "--dim", f"0.0={2**63}"], "expects ARGUMENT.DIMENSION=SIZE or SIZE"),
        ([CAUSAL, "--dim", f"0.0={2**62}"], "not enough memory"),
        ([ROOT / "test" / "transforms" / "check-sizes.mlir", "--entry", "argument"], "not enough memory"),
        ([ATTENTION, "--tolerance", "nan"], "--tolerance: expects a number, 0 or more, but found 'nan'"),
        ([ATTENTION, "--dim", "0=3"], "expects ARGUMENT.DIMENSION=SIZE or SIZE"),
        ([ATTENTION, "--dim", "0.0=3"], "cannot be"),
        ([CAUSAL, "--dim", "1.0=3", "--dim", "2.0=4"], "the dimensions 1.0, 2.0 are equal in the graph"),
    ],
    ids=lambda value: " ".join(map(str, value))[-40:] if isinstance(value, list) else "",
)
def test_mistakes_give_one_message(arguments, message):
    done = attn_run(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


def test_a_mistake_of_a_process():
    done = as_process("missing.mlir")
    assert done.returncode == 1
    assert done.stderr.strip() == "missing.mlir: error: cannot be read: no such file or directory"


def test_a_line_on_which_the_parser_crashes():
    done = as_process(ROOT / "test" / "pipelines" / "attn_opt_crash.mlir")
    assert done.returncode == 1
    assert "attn_opt_crash.mlir:10:5: error: upstream's parser crashes on this line" in done.stderr
    assert "internal error" not in done.stderr


def test_wrong_arrays_give_one_message(tmp_path):
    file = tmp_path / "a.npy"
    np.save(file, np.zeros((3, 4)))
    done = attn_run("-", "--inputs", file, stdin=DOUBLE.replace("KIND", "f32"))
    assert done.returncode == 1
    assert "argument 0 must be tensor<3x4xf32> (numpy's float32), but is an array of float64" in done.stderr


def test_an_op_that_the_check_does_not_know_is_named():
    text = """
    func.func @f(%a: i32) -> i32 {
      %sum, %overflow = arith.addui_extended %a, %a : i32, i1
      return %sum : i32
    }"""
    done = attn_run("-", "--fuse", "none", stdin=text)
    assert done.returncode == 1
    assert "<stdin>:3:" in done.stderr
    assert "no meaning for the op 'arith.addui_extended'" in done.stderr
    assert "--no-check" in done.stderr
    assert attn_run("-", "--fuse", "none", "--no-check", stdin=text).returncode == 0


def test_large_logits_are_judged_by_what_rounding_alone_costs(tmp_path):
    """Scores of a standard deviation of 25: single precision cannot hold the usual tolerance."""
    text = ATTENTION.read_text().replace("x64x", "x640x").replace("<64x", "<640x")
    generator, files = np.random.default_rng(0), []
    for name, shape in {"q": (451, 640), "k": (387, 640), "v": (387, 80)}.items():
        files.append(str(tmp_path / f"{name}.npy"))
        np.save(files[-1], generator.standard_normal(shape, dtype=np.float32))
    done = attn_run("-", "--inputs", *files, stdin=text)
    assert done.returncode == 0, done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.endswith("PASS") and line.startswith("0"))
    assert 1e-5 < float(line.split()[-2]) < 1e-3
    assert attn_run("-", "--inputs", *files, "--tolerance", "1e-7", stdin=text).returncode == 1


def test_a_byte_order_mark_and_names_that_are_no_text(tmp_path):
    text = b"\xef\xbb\xbf" + DOUBLE.replace("KIND", "f32").encode()
    done = subprocess.run([*COMMAND, "-"], input=text, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    file = os.fsencode(tmp_path) + b"/\xff \xc3\xa4.mlir"
    with open(file, "wb") as stream:
        stream.write(text.replace(b"\n", b"\r\n"))
    for more in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = subprocess.run([*COMMAND, file], capture_output=True, timeout=120, env={**os.environ, **more})
        assert done.returncode == 0, done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("- <&-", "<stdin>: error: cannot be read: bad file descriptor"),
        ("- < MODULE", "<stdin>:2:1: error: expected MLIR assembly, but found what is not UTF-8 text"),
        ("EXAMPLE >&-", "<stdout>: error: cannot be written: bad file descriptor"),
        ("EXAMPLE > /dev/full", "<stdout>: error: cannot be written: no space left on device"),
    ],
)
def test_streams_that_cannot_be_used(command, message, tmp_path):
    (tmp_path / "bad.mlir").write_bytes(b"module {\n\xff}")
    command = command.replace("EXAMPLE", shlex.quote(str(ATTENTION))).replace("MODULE", f"{tmp_path}/bad.mlir")
    for tool in ("attn_run", "attn_opt"):
        line = f"{shlex.join([*COMMAND[:-1], f'attn_opt.compiler.tools.{tool}'])} {command}"
        done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 1
        assert done.stderr.startswith(message)
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_checked", [True, False])
def test_a_kernel_without_end_ends_on_request(tmp_path, is_checked):
    (tmp_path / "endless.mlir").write_text("""
        func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
          %zero = arith.constant 0 : index
          %one = arith.constant 1 : index
          %years = arith.constant 4611686018427387904 : index
          %y = scf.for %i = %zero to %years step %one iter_args(%sum = %x) -> tensor<4xf32> {
            %more = arith.addf %sum, %x : tensor<4xf32>
            scf.yield %more : tensor<4xf32>
          }
          return %y : tensor<4xf32>
        }""")
    command = [*COMMAND, str(tmp_path / "endless.mlir"), *([] if is_checked else ["--no-check"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tool:
        assert any("compiled" in line for line in tool.stdout)
        time.sleep(0.2)
        tool.terminate()
        assert tool.wait(timeout=60) == 128 + signal.SIGTERM
