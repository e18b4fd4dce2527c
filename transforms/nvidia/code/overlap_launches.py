"""The pass ``overlap-launches``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ....dialects.mlir import ir
from ...passes import Pass, PassError
from ...rewriting import ops_in, ops_of
from ..launched_memory import is_surely_launched, root
from ..launching import CONTROL, FIRST_ARGUMENT, control, launched
from .tiles_to_nvvm import WRITES

EARLY = "tile.early"  # of a launch: its blocks may come before the launch before it is done


@dataclass(frozen=True)
class OverlapLaunches(Pass):
    """Blocks of a kernel come while the one before it on the host is at work, and wait for its results::

        gpu.launch_func @kernels::@norm …                 // writes %y
        gpu.launch_func @kernels::@keys … args(%y, …)
        gpu.launch_func @kernels::@values … args(%y, …)   // reads nothing of what @keys writes
      becomes
        gpu.launch_func @kernels::@norm …
        gpu.launch_func @kernels::@keys … {tile.early}
        gpu.launch_func @kernels::@values … {tile.early}

    and in the kernels, after ``tiles-to-nvvm``
        llvm.func @norm(…) { nvvm.griddepcontrol launch_dependents … }      // once all blocks are there
        llvm.func @keys(…) { nvvm.griddepcontrol wait; nvvm.griddepcontrol launch_dependents … }
        llvm.func @values(…) { … nvvm.griddepcontrol wait; llvm.return }

    so that launching costs no time between the two. Threads wait until the kernel before theirs is done, memory and
    all, so that each kernel is done after all that come before it: before all else, but for warps that copy what is
    there beforehand (``specialize-warps``, which says where the others wait). One that has to do with nothing that may
    still be at work waits at its end: @values works beside @keys, whose blocks let it come when they know that @norm is
    done. Where no such kernel follows, the next one may come at once. (CUDA's programmatic dependent launch; sm_90 and
    later.)
    """

    def run(self, op: ir.Operation) -> None:
        kernels = _Kernels(op)
        for name, uses in kernels.uses.items():
            block, late = kernels.block(name), name in kernels.late
            waits = ops_in(block.owner.operation, CONTROL)
            is_waiting = any(use.number for use in uses)
            for wait in waits if late or not is_waiting else []:
                wait.erase()
            with uses[0].launch.location:
                if is_waiting and (late or not waits):
                    end = ops_of(block)[-1]
                    with ir.InsertionPoint(end) if late else ir.InsertionPoint.at_block_begin(block):
                        waits = [control("wait")]
                if any(use.next is not None for use in uses):
                    behind = is_waiting and not late and any(use.next in kernels.late for use in uses)
                    with ir.InsertionPoint.after(waits[0]) if behind else ir.InsertionPoint.at_block_begin(block):
                        control("launch_dependents")
            for use in uses:
                if use.number:
                    use.launch.attributes[EARLY] = ir.UnitAttr.get()


@dataclass(frozen=True)
class _Use:
    """A launch, its number in its function, and the name of the kernel that is launched next."""

    launch: ir.Operation
    number: int
    next: str | None


class _Kernels:
    """Those that are launched, by their names. `late`: that need not wait before their end, wherever they are."""

    def __init__(self, top: ir.Operation):
        self.top = top
        self.uses: dict[str, list[_Use]] = {}
        functions = [ops_in(function, "gpu.launch_func") for function in ops_in(top, "func.func")]
        for launches in functions:
            names = [*map(launched, launches), None]
            for number, launch in enumerate(launches):
                self.uses.setdefault(launched(launch), []).append(_Use(launch, number, names[number + 1]))
        early: set[str] = set()
        while True:  # one that has to wait somewhere waits everywhere, which may keep others from being late
            found = [(launched(one), late) for launches in functions for one, late in _late(launches, early)]
            wait = {name for name, late in found if not late}
            self.late = {name for name, _ in found} - wait
            if wait == early:
                break
            early = wait

    def block(self, name: str) -> ir.Block:
        kernels = (f for f in ops_in(self.top, "llvm.func") if ir.StringAttr(f.attributes["sym_name"]).value == name)
        kernel = next(kernels, None)
        if kernel is None:
            launch = self.uses[name][0].launch
            raise PassError(f"the kernel @{name} is no llvm.func: run this pass after tiles-to-nvvm", launch)
        return kernel.regions[0].blocks[0]


def _late(launches: list[ir.Operation], early: Collection[str]) -> Iterator[tuple[ir.Operation, bool]]:
    """Of each whether it need not wait before its end: it has no memory in common, that one of them writes, with
    launches that may be at work when its blocks come. `done`: the launches that are not, once the last one lets it
    come, are those before that number. Of a launch that may have no blocks nothing can be told. Those of the names
    `early` wait in any case."""
    memory = [_memory(launch) for launch in launches]
    done = 0
    for number, launch in enumerate(launches):
        may_wait = number > 0 and is_surely_launched(launches[number - 1]) and launched(launch) not in early
        is_late = may_wait and all(_are_apart(memory[number], other) for other in memory[done:number])
        yield launch, is_late
        done = done if is_late else number


Memory = tuple[set[ir.Value | None], set[ir.Value | None]]  # that is used, and that of it that is written


def _memory(launch: ir.Operation) -> Memory:
    arguments = list(launch.operands)[FIRST_ARGUMENT + 1 :]
    roots = {n: root(v) for n, v in enumerate(arguments) if "memref<" in str(v.type)}  # also maps of tensors
    if WRITES not in launch.attributes:
        return {*roots.values(), None}, {None}
    written = {roots[n] for n in ir.DenseI32ArrayAttr(launch.attributes[WRITES])}
    return set(roots.values()), written


def _are_apart(one: Memory, other: Memory) -> bool:
    """Whether neither writes what the other one uses; None stands for any memory."""
    return all(
        None not in used | written and not used & written for used, written in ((one[0], other[1]), (other[0], one[1]))
    )
