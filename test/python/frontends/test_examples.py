"""The examples of each framework, run as their first lines say."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(("name", "package"), [("pytorch", "torch"), ("onnx", "onnx"), ("jax", "jax")])
def test_examples(name, package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"no {package}")
    command = [sys.executable, str(EXAMPLES / f"from_{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1 attention found and fused" in done.stdout
    place = {"onnx": r"a", "jax": r".*from_jax\.py:18", "pytorch": r".*from_pytorch\.py:24"}[name]
    assert re.search(f"^attention at {place}, found", done.stdout, re.MULTILINE), done.stdout
    assert done.stderr == ""
