"""The pass ``share-kernels``."""

import collections
from dataclasses import dataclass

from ....dialects.mlir import ir
from ...nameless import nameless, outlines
from ...passes import Pass
from ...rewriting import ops_in
from ..launching import launched


@dataclass(frozen=True)
class ShareKernels(Pass):
    """Makes one of kernels that differ in nothing but their names, as those of a model's layers do::

        gpu.launch_func @main_kernels::@main_1 … args(%a, %b)
        gpu.launch_func @main_kernels::@main_5 … args(%c, %d)           // a kernel that is the same
      becomes
        gpu.launch_func @main_kernels::@main_1 … args(%a, %b)
        gpu.launch_func @main_kernels::@main_1 … args(%c, %d)

    All that comes after is done for one of them. The first kernel of a function stays by itself: what its warps know to
    be there before (``specialize-warps``) is less than what others know.
    """

    def run(self, op: ir.Operation) -> None:
        firsts = {launched(launches[0]) for f in ops_in(op, "func.func") if (launches := ops_in(f, "gpu.launch_func"))}
        kernels = [o for o in ops_in(op, "gpu.func") if ir.StringAttr(o.attributes["sym_name"]).value not in firsts]
        alike = collections.Counter(map(outlines, kernels))
        launches_of = collections.defaultdict[str, list[ir.Operation]](list)
        for launch in ops_in(op, "gpu.launch_func"):
            launches_of[launched(launch)].append(launch)
        first: dict[tuple[ir.Operation, str], ir.Attribute] = {}
        for kernel in kernels:
            if alike[outlines(kernel)] == 1:
                continue
            launches = launches_of[ir.StringAttr(kernel.attributes["sym_name"]).value]
            if not launches:
                continue
            own = launches[0].attributes["kernel"]
            shared = first.setdefault((kernel.parent.operation, nameless(kernel)), own)
            if shared != own:
                for launch in launches:
                    launch.attributes["kernel"] = shared
                kernel.erase()
