"""ByteIR's attention examples, as graphs and as ByteIR fused them: compiled, run at their full sizes, checked."""

import pathlib
import subprocess
import sys

import pytest

SEEDS = pathlib.Path(__file__).parents[3] / "shared" / "seeds" / "byteir"
SMALL = ("dot_attention", "split_head_attention_prologue", "split_head_multiquery_attention")
LARGE = ("multihead_attention", "multihead_attention_tile_3d")  # 10 GB in float64

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SEEDS.is_dir(), reason=f"ByteIR's examples are not at {SEEDS}"),
]


def check(file, *options):
    command = [sys.executable, "-m", "attn_opt.compiler.tools.attn_run", str(SEEDS / file), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("form", ["input", "expected"])
def test_small_examples(name, form):
    check(f"{name}.{form}.mlir")


@pytest.mark.parametrize("name", SMALL)
def test_small_examples_without_fusion(name):
    check(f"{name}.input.mlir", "--fuse", "none")


def test_large_examples():
    """One test, so that no two processes need their memory at once."""
    for name in LARGE:
        check(f"{name}.input.mlir")
