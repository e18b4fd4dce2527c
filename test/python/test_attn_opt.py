"""The command attn-opt in its own process state: what goes where, and how bugs are told."""

import dataclasses
import os
import re
import signal
import subprocess
import sys

import pytest
from attn_opt.compiler.tools import attn_opt
from attn_opt.compiler.tools.attn_opt_options import parse_options
from attn_opt.dialects import make_context
from attn_opt.dialects.diagnostic import DiagnosedError
from attn_opt.transforms import passes

MODULE = """\
func.func @f(%x: tensor<3xf32>, %o: tensor<3x3xf32>) {
  linalg_ext.diag ins(%x : tensor<3xf32>) outs(%o : tensor<3x3xf32>)
  return
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "in.mlir"
    path.write_text(MODULE)
    return str(path)


def test_prints_ir_on_stdout_alone(file, capsys):
    assert attn_opt.main([file, "--symbol-dce", "--timing"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("module {") and "linalg_ext.diag ins(" in out
    assert "symbol-dce" in err and "module {" not in err


def test_errors_show_the_line(file, capsys):
    with open(file, "w") as stream:
        stream.write(MODULE.replace("outs(%o", "outs(%\t"))
    assert attn_opt.main([file]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [
        f"{file}:2:48: error: 'linalg_ext.diag': expected an operand, output, but found '%'",
        "  linalg_ext.diag ins(%x : tensor<3xf32>) outs(%\t : tensor<3x3xf32>)",
        " " * 47 + "^",
    ]


def test_a_bug_says_how_to_see_it_again(file, capsys, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Broken(passes.Pass):
        """Breaks."""

        def run(self, op):
            raise RuntimeError("broken")

    monkeypatch.setattr(passes, "names", lambda: ["broken"])
    monkeypatch.setattr(passes, "lookup", {"broken": Broken}.__getitem__)
    assert attn_opt.main([file, "--broken"]) == 1
    out, err = capsys.readouterr()
    assert not out and "Traceback" not in err
    assert "attn-opt: internal error: pass 'broken' raised RuntimeError: broken" in err
    kept = re.search(r"the IR it failed on: (\S+)", err).group(1)
    assert f"to reproduce: attn-opt {kept} --pass-pipeline='builtin.module(broken)'" in err
    assert attn_opt.main([kept, "--symbol-dce"]) == 0
    os.unlink(kept)


def test_a_crash_of_a_pass_is_told_like_a_bug(file, capsys, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Crashes(passes.Pass):
        """Crashes."""

        def run(self, op):
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(passes, "names", lambda: ["crashes"])
    monkeypatch.setattr(passes, "lookup", {"crashes": Crashes}.__getitem__)
    monkeypatch.setattr(sys, "argv", ["attn-opt", file, "--symbol-dce", "--crashes", "--cse"])
    assert attn_opt.main() == 1
    out, err = capsys.readouterr()
    assert not out
    assert "attn-opt: internal error: builtin.module(crashes) crashed: Killed" in err
    kept = re.search(r"the IR it failed on: (\S+)", err).group(1)
    with open(kept) as stream:
        assert "linalg_ext.diag ins(" in stream.read()
    os.unlink(kept)


def test_remarks_are_shown_if_asked_for_and_warnings_always(file, capsys, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Talks(passes.Pass):
        """Talks."""

        def run(self, op):
            passes.remark(op, "this is so")
            passes.warn(op, "mind this")

    monkeypatch.setattr(passes, "names", lambda: ["talks"])
    monkeypatch.setattr(passes, "lookup", {"talks": Talks}.__getitem__)
    assert attn_opt.main([file, "--talks"]) == 0
    assert "remark:" not in (err := capsys.readouterr().err) and "warning: mind this" in err
    assert attn_opt.main([file, "--talks", "--remarks"]) == 0
    assert "remark: this is so" in capsys.readouterr().err


def planned(*arguments):
    with make_context():
        return attn_opt.planned(parse_options(list(arguments)))


def test_lowering_is_asked_of_the_pipelines():
    def names(*arguments):
        return [stage.text for stage in planned(*arguments)]

    assert "check-lowered" in names("--lower-to=cpu")[-1]
    assert any("tiles-to-nvvm" in name for name in names("--lower-to=nvidia"))
    assert any("keep-maximum" in name for name in names("--lower-to=nvidia"))
    without = names("--lower-to=nvidia{keep-maximum=0 stages=3}")
    assert not any("keep-maximum" in name for name in without)
    assert any("specialize-warps{stages=3}" in name for name in without)
    assert not any("specialize-warps" in name for name in names("--lower-to=nvidia{arch=sm_80}"))
    with pytest.raises(DiagnosedError, match="target 'nvidia' has no option 'keep-maximun'; did you mean"):
        names("--lower-to=nvidia{keep-maximun=0}")
    with pytest.raises(DiagnosedError, match="expects cpu or nvidia, but found 'abacus'"):
        names("--lower-to=abacus")
    with pytest.raises(DiagnosedError, match=r"expects a GPU's architecture, sm_80 or later, .* found 'sm_7'"):
        names("--lower-to=nvidia{arch=sm_7}")
    with pytest.raises(
        DiagnosedError, match=r"--lower-to=cpu.*: option 'parts' expects an integer from 0 to 1024, but"
    ):
        names("--lower-to=cpu{threads=4 parts=1000000}")
    with pytest.raises(DiagnosedError, match=r"option 'threads' expects an integer from 1 to \d+, but found 0"):
        names("--lower-to=cpu{threads=0}")
    with pytest.raises(DiagnosedError, match=r"option 'multiprocessors' expects an integer from 1 to \d+, but found 0"):
        names("--lower-to=nvidia{arch=sm_80 multiprocessors=0}")


@pytest.mark.parametrize(
    ("arguments", "machine"),
    [
        (["--fuse-attention"], ""),
        (["--fuse-attention", "--lower-to=cpu"], "cpu"),
        (["--fuse-attention", "--lower-to=nvidia"], "sm_90a"),
        (["--fuse-attention", "--lower-to=nvidia{copy-engine=0}"], "sm_90"),
        (["--pass-pipeline=builtin.module(fuse-attention,cse)", "--lower-to=nvidia{arch=sm_89}"], "sm_89"),
        (["--fuse-attention=machine=sm_80", "--lower-to=nvidia"], "sm_80"),
    ],
    ids=str,
)
def test_tile_sizes_are_those_of_the_target(arguments, machine):
    (stage,) = (s for s in planned(*arguments) if s.name == "fuse-attention")
    assert stage.ours.machine == machine


def test_a_broken_pipe_is_silent(file):
    command = [sys.executable, "-m", "attn_opt.compiler.tools.attn_opt", file]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.wait()


def test_loads_only_what_it_needs(file):
    """Start-up is most of what a small file costs: frameworks, code generators and other passes are left alone."""
    command = ["-X", "importtime", "-m", "attn_opt.compiler.tools.attn_opt", file, "--canonicalize", "--cse"]
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "attn_opt.dialects.assembly" in loaded
    heavy = {"llvmlite", "torch", "onnx", "jax", "attn_opt.compiler.runtime.cpu", "attn_opt.compiler.runtime.ptx"}
    assert not loaded & heavy
    assert not any(name.startswith("attn_opt.transforms.") and name != "attn_opt.transforms.passes" for name in loaded)
