"""The pass ``overlap-launches``."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects.mlir import ir
from ..passes import Pass, PassError
from ..rewriting import ops_in

EARLY = "tile.early"  # of a launch: its blocks may come before the launch before it is done


@dataclass(frozen=True)
class OverlapLaunches(Pass):
    """Blocks of a kernel come while the one before it on the host is at work, and wait for its results::

        gpu.launch_func @kernels::@attention_0 …
        gpu.launch_func @kernels::@attention_1 …
      becomes
        gpu.launch_func @kernels::@attention_0 …
        gpu.launch_func @kernels::@attention_1 … {tile.early}

    and in the kernels, after ``tiles-to-nvvm``
        llvm.func @attention_0(…) { nvvm.griddepcontrol launch_dependents … }    // once all blocks are there
        llvm.func @attention_1(…) { nvvm.griddepcontrol wait … }                 // until it is done, memory and all

    so that launching costs no time between the two. Every thread waits before all else, so a third kernel knows by the
    second one that the first is done. (CUDA's programmatic dependent launch; sm_90 and later.)
    """

    def run(self, op: ir.Operation) -> None:
        for function in ops_in(op, "func.func"):
            launches = ops_in(function, "gpu.launch_func")
            for number, launch in enumerate(launches):
                kinds = ["launch_dependents"] if number + 1 < len(launches) else []
                if number:
                    launch.attributes[EARLY] = ir.UnitAttr.get()
                    kinds.insert(0, "wait")
                with ir.InsertionPoint.at_block_begin(_kernel(op, launch)), launch.location:
                    for kind in kinds:
                        attribute = ir.Attribute.parse(f"#nvvm<grid_dep_action {kind}>")
                        ir.Operation.create("nvvm.griddepcontrol", [], [], {"kind": attribute})


def _kernel(top: ir.Operation, launch: ir.Operation) -> ir.Block:
    """The first block of the kernel that is launched."""
    name = str(launch.attributes["kernel"]).rpartition("@")[2]
    kernels = (f for f in ops_in(top, "llvm.func") if ir.StringAttr(f.attributes["sym_name"]).value == name)
    kernel = next(kernels, None)
    if kernel is None:
        raise PassError(f"the kernel @{name} is no llvm.func: run this pass after tiles-to-nvvm", launch)
    return kernel.regions[0].blocks[0]
