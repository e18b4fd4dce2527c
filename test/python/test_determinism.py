"""The IR of a graph is the same each time, so that it can be compared, tested and kept."""

import pytest
from attn_opt.compiler.graphs import Attention
from lowered import stages

# Sizes that are known at run time only, and masks: bounds of loops are made of several values.
DYNAMIC = Attention(heads=2, heads_kv=1, queries=50, keys=90, dynamic=True, window=(-100, 0), bottom_right=True)
GROUPS = Attention(heads=2, queries=90, keys=90, groups=((40, 40), (50, 50)), window=(None, 0))
CUT = Attention(heads=2, queries=77, keys=130, head_size=41, element="f16", window=(None, 0))


@pytest.mark.sampled(5, 2)
@pytest.mark.parametrize("graph", [DYNAMIC, GROUPS, CUT], ids=["dynamic", "groups", "cut"])
@pytest.mark.parametrize("target, level", [("cpu", "target"), ("nvidia", "scheduled")])
def test_compiling_again_gives_the_same_ir(graph: Attention, target: str, level: str) -> None:
    text = graph.text()
    assert len({stages(text, target)[level] for _ in range(3)}) == 1
