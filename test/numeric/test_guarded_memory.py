"""Kernels read and write nothing beyond their buffers and arrays."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from attn_opt.compiler.graphs import Attention

TOLERANCE = {"f32": 2e-5, "bf16": 2e-2, "f16": 4e-3}
SHAPES = {
    "causal": {"queries": 70, "keys": 77, "window": (None, 0)},
    "padding": {"queries": 130, "keys": 131, "head_size": 40, "value_size": 72},
    "odd features": {"queries": 64, "keys": 192, "head_size": 33, "value_size": 20},
    "odd tiles": {"queries": 33, "keys": 49, "head_size": 17, "bias": "qk"},
    "window": {"queries": 300, "keys": 333, "window": (-50, 20), "softcap": 20.0},
    "dynamic": {"queries": 45, "keys": 99, "window": (None, 0), "dynamic": True},
    "decoding": {"queries": 1, "keys": 1001, "heads": 8, "heads_kv": 2},
    "sequences": {"queries": 103, "keys": 227, "groups": ((70, 77), (0, 0), (33, 150)), "window": (None, 0)},
    "mask": {"queries": 100, "keys": 111, "mask": "qk"},
}


FEW = ["odd tiles", "decoding"]  # all of a case are in one process
CASES = [("f32", FEW), ("f32", [name for name in SHAPES if name not in FEW]), ("bf16", [*SHAPES]), ("f16", [*SHAPES])]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("element", "names"), CASES, ids=["few", *TOLERANCE])
def test_nothing_beyond_buffers(element, names):
    graphs = [Attention(**{"heads": 2, "element": element} | SHAPES[name]) for name in names]
    script = Path(__file__).with_name("guarded_memory.py")
    given = json.dumps([dataclasses.asdict(graph) for graph in graphs])
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, script], input=given, capture_output=True, text=True, env=paths)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    lines = run.stdout.splitlines()
    assert len(lines) == 2 * len(graphs)
    for line in lines:
        assert float(line.rpartition(":")[2]) < TOLERANCE[element], line
