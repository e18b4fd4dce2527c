"""The benchmark table: row by row, resumed where it stopped; on a GPU machine without the bindings."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
from attn_opt.compiler.bench.cases import read_cases
from attn_opt.compiler.graphs import Attention

BENCH = pathlib.Path(__file__).parents[2] / "bench"
ABSENT = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch_mlir", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Absent())
sys.argv = ["table.py", *sys.argv[1:]]
runpy.run_path(%r, run_name="__main__")
"""


def table(*arguments, without_bindings=False):
    script = str(BENCH / "table.py")
    start = ["-c", ABSENT % script] if without_bindings else [script]
    return subprocess.run([sys.executable, *start, *arguments], capture_output=True, text=True)


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(tmp_path):
    arguments = ["--only", "s 128", "--compare", "torch", "--kept", str(tmp_path), "--rounds=1", "--seconds=0.01"]
    first = table(*arguments)
    assert first.returncode == 0, first.stderr
    row = next(line for line in first.stdout.split("\n") if line.startswith("| f32, d 128, s 128 |"))
    rows = (tmp_path / "rows.jsonl").read_text()
    (tmp_path / "rows.jsonl").write_text(rows.replace(row.split("|")[2], " 12345 "))
    again = table(*arguments)
    assert "| 12345 |" in again.stdout and (tmp_path / "rows.jsonl").read_text().count("\n") == 1
    other = table(*arguments, "--compare", "")
    assert "12345" not in other.stdout  # with other peers it is another row
    drawn = table(*arguments, "--plot", str(tmp_path / "out.svg"))
    if importlib.util.find_spec("matplotlib") is None:
        assert "--plot needs matplotlib: pip install 'attn-opt[plot]'" in drawn.stderr
    else:  # of what was kept
        assert "f32, d 128, s 128" in (tmp_path / "out.svg").read_text()


@pytest.mark.slow
def test_kernels_compiled_before_need_no_bindings(tmp_path):
    """As far as it goes without a GPU: what says no is the process that measures, which has no torch."""
    arguments = ["--target", "nvidia", "--only", "d 80", "--kept", str(tmp_path), "--compare", "torch-cudnn"]
    assert table(*arguments, "--stop-before-timing").returncode == 0
    (kernel,) = tmp_path.glob("*.kernel")
    done = table(*arguments, without_bindings=True)
    assert done.returncode == 1 and "| b 2, h 12, s 1023, d 80 | failed |" in done.stdout
    assert "No module named 'torch'" in done.stderr and "torch_mlir" not in done.stderr
    assert not (tmp_path / "rows.jsonl").exists()  # what failed is measured again
    kernel.unlink()
    assert "torch_mlir" in table(*arguments, without_bindings=True).stderr


def test_cases_are_read_with_what_is_known_of_them():
    cases = {name: (options.cases[0][1], known) for name, options, known in read_cases(BENCH / "gpu_cases.txt")}
    assert cases["d 64, s 1024"] == (
        Attention(batch=16, heads=32, queries=1024, keys=1024, head_size=64, element="f16"),
        "",
    )
    assert cases["f32, d 256, s 4096"][1].startswith("spills ")
    assert len(cases) == sum("|" in line and line[0] != "#" for line in (BENCH / "gpu_cases.txt").open())
