"""Graphs taken through a whole pipeline, without the machine code at its end, which takes most of the time."""

from attn_opt.compiler import pass_manager
from attn_opt.compiler.pipelines import STAGE_AFTER, fusion_of, lower
from attn_opt.compiler.recording import Snapshots
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.fuse_attention import FuseAttention


def stages(text: str, target: str) -> dict[str, str]:
    """The IR of each level, by name; `target` as attn-opt's --lower-to takes it."""
    snapshots = Snapshots(STAGE_AFTER)
    with make_context() as context:
        module = parse_module(text, "graph.mlir", context)
        versions = ["version-queries"] if target == "cpu" else []
        items = ["raise-attention", *versions, FuseAttention(**fusion_of(target)), *lower(target)]
        pass_manager.run(items, module, hooks=[snapshots], verify=STAGE_AFTER)
        return snapshots.texts()
