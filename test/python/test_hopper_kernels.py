"""Kernels of the benchmark table as ptxas makes them: no loop over keys spills registers, no matmul is serialised."""

import pathlib
import sys

import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.runtime import ptx

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "numeric"))
from narrow_attention import NarrowAttention as Attention

CASES = {
    "d64": Attention(4096, 4096, 64, 64, batch=(4, 32), scale=0.125, element="f16"),
    "d128": Attention(4096, 4096, 128, 128, batch=(4, 16), scale=0.09, element="f16"),
    "d256": Attention(4096, 4096, 256, 256, batch=(4, 8), scale=0.0625, element="f16"),
    "d64_causal": Attention(4096, 4096, 64, 64, batch=(4, 32), scale=0.125, element="f16", causal=True),
    "d128_causal": Attention(4096, 4096, 128, 128, batch=(4, 16), scale=0.09, element="f16", causal=True),
    "d256_causal": Attention(4096, 4096, 256, 256, batch=(4, 8), scale=0.0625, element="f16", causal=True),
    "d80": Attention(1023, 1023, 80, 80, batch=(2, 12), scale=0.11),
    "bias": Attention(4096, 4096, 64, 64, batch=(2, 16), scale=0.125, bias="mk", bias_element="bf16"),
}

SPILLED = {"d128_causal": 8}  # bytes: two numbers of the loop over tiles, stored and loaded once a tile

needs_ptxas = pytest.mark.skipif(ptx.find_tool("ptxas") is None, reason="no ptxas")


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_spilled_or_serialised(name):
    kernel = compile(CASES[name].text(), target="nvidia", arch="sm_90a")
    text = kernel.ir("ptx")
    assert "cp.async.bulk.tensor" in text and "setmaxnreg" in text
    made = ptx.assemble(text, "sm_90a")
    assert made.spills <= SPILLED.get(name, 0) and not [line for line in made.warnings if "C75" in line], made.log


def test_the_copy_engine_can_be_turned_off():
    case = Attention(256, 256, 64, 64, scale=0.125, element="f16")
    text = compile(case.text(), target="nvidia", arch="sm_90a", copy_engine=False).ir("ptx")
    assert "cp.async.bulk" not in text and "wgmma" in text
