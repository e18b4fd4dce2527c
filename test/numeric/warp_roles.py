"""Kernels with warps of different roles, run without a GPU by the reference evaluator: a thread for each warpgroup that
computes, one for the warp that copies, one for those that arrange, or for a second one that copies. They wait for each
other as on the device: at barriers in shared memory, whose phases must not be missed, for turns, and where all meet.
Who waits for ever is found.

A warpgroup computes with whole tiles, and keeps its own rows.
"""

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.reference import arrays, interface
from attn_opt.dialects.reference.evaluator import Frame, evaluate
from attn_opt.dialects.tile import dims_of, layout_of, parts_of
from attn_opt.dialects.tile.staging import staged_tile
from attn_opt.transforms.nvidia.architecture import ARRANGERS, ROWS, WARPS
from attn_opt.transforms.nvidia.launching import CONTROL
from attn_opt.transforms.nvidia.marks import ALL_WARPS, BLOCK_THREADS
from attn_opt.transforms.rewriting import ancestors, ops_in
from gpu_modules import Registers, View, joined_sizes, loaded, place, stage_of
from gpu_threads import Threads

PATIENCE = 10.0  # seconds


class Stuck(Exception):
    """Waits for what does not come, or another one does."""


class Phases:
    """A barrier in shared memory."""

    def __init__(self, arrivals: int):
        self.arrivals, self.pending, self.completed = arrivals, arrivals, 0

    def arrive(self, count: int) -> None:
        self.pending -= count
        assert self.pending >= 0, "more arrivals than a phase has"
        if self.pending == 0:
            self.pending, self.completed = self.arrivals, self.completed + 1


class Running:
    """A block that runs."""

    def __init__(self, kernel: ir.Operation):
        rows = {v.type.shape[0] for o in ops_in(kernel) for v in o.results if layout_of(v.type) == "fragment"}
        self.warpgroups = max(rows) // ROWS
        self.roles = [WARPS * n for n in range(self.warpgroups + 1)]  # by their first warp
        others = ops_in(kernel, "tile.arrange", "tile.copy_rows", "tile.take")
        if others or len(ops_in(kernel, CONTROL)) > 1:
            self.roles.append(self.roles[-1] + 1)
        self.changed = threading.Condition()
        self.error: Exception | None = None
        self.memory: dict[ir.Operation, np.ndarray] = {}
        self.phases: dict[int, list[Phases]] = {}
        self.turns = [0] * self.warpgroups
        self.together = threading.Barrier(len(self.roles))
        self.computing_meet = threading.Barrier(self.warpgroups + 1)
        self.warp = threading.local()
        self.views: dict[int, int] = dict.fromkeys(range(self.warpgroups), 0)  # tiles that each one looked at

    @property
    def warpgroup(self) -> int:
        return self.warp.number // WARPS

    @property
    def computes(self) -> bool:
        return self.warp.number < WARPS * self.warpgroups

    @property
    def rows(self) -> slice:
        return slice(ROWS * self.warpgroup, ROWS * (self.warpgroup + 1))

    def until(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.error is not None, PATIENCE)
            if not condition():
                raise Stuck(f"warp {self.warp.number} waits for {what()}")

    def act(self, change: Callable[[], None]) -> None:
        with self.changed:
            change()
            self.changed.notify_all()

    def run(self, bodies: Sequence[Callable[[list], list]], arguments: Sequence) -> None:
        """`bodies`: the kernel's, one for each role."""

        def role(warp: int, body: Callable[[list], list]) -> None:
            self.warp.number = warp
            try:
                with np.errstate(all="ignore"):
                    body(list(arguments))
            except Exception as error:
                self.error = self.error or error
                self.together.abort()
                self.computing_meet.abort()
                self.act(lambda: None)

        threads = [threading.Thread(target=role, args=of) for of in zip(self.roles, bodies, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.error is not None:
            raise self.error


def plain(function: Callable[..., Sequence | None]) -> interface.Rule:
    """Of an op whose results are what `function` gives for it and its operands."""
    return lambda op, frame: lambda operands: function(op, *operands) or []


def rules(running: Callable[[], Running]) -> dict[str, interface.Rule]:
    """The meaning of ops for the block that runs."""

    def alloc(op):
        kind, shared = op.operation.results[0].type, running()
        with shared.changed:
            made = shared.memory.get(op.operation)
            if made is None:
                poison = np.nan if arrays.is_float(kind) else 0
                made = shared.memory[op.operation] = np.full(kind.shape, poison, arrays.value_dtype(kind))
        return [made]

    def init_barriers(op, barriers):
        with running().changed:
            running().phases.setdefault(id(barriers), [Phases(op.arrivals.value) for _ in barriers])

    def phases_of(barriers, use):
        return running().phases[id(barriers)][int(use) % len(barriers)]

    def wait(op, barriers, use):
        phases, wanted = phases_of(barriers, use), int(use) // len(barriers) + 1 - op.behind.value
        running().until(lambda: phases.completed >= wanted, lambda: f"phase {wanted} of {op.operation}")
        assert phases.completed == wanted, (
            f"a later phase than {wanted} of {op.operation} is complete: by its parity it never comes"
        )

    def arrive(op, barriers, use):
        phases = phases_of(barriers, use)
        computing = WARPS * running().warpgroups
        others = phases.arrivals - computing  # warps that read what one tells beside those that compute
        if 0 < others <= ARRANGERS:
            count = WARPS if running().computes else others
        else:
            count = phases.arrivals // running().warpgroups if running().computes else phases.arrivals
        running().act(lambda: phases.arrive(count))

    def copy_bulk(op, source, buffer, barriers, use, *offsets):
        kind = staged_tile(op.operation.operands[1].type)
        parts = list(map(parts_of, dims_of(op), kind.shape))
        counts = {d: n for part in parts for d, n in part}
        stage = stage_of(buffer, int(use) % len(buffer))
        stage[...] = np.nan
        found = source[tuple(slice(int(o), int(o) + counts.get(d, 1)) for d, o in enumerate(offsets))]
        rows = [[d for d, _ in part] for part in parts]
        assert all(dims == sorted(dims) for dims in rows), "a box is written in the order of memory"
        order = [d for d in range(source.ndim) if d not in counts] + list(counts)
        sizes = [math.prod(found.shape[d] for d, _ in part) for part in parts]
        found = np.transpose(found, order).reshape(sizes)
        stage[...] = 0  # beyond the end
        stage[tuple(map(slice, found.shape))] = found
        running().act(lambda: phases_of(barriers, use).arrive(1))

    def copy_rows(op, source, buffer, barriers, use, *indices):
        stage = stage_of(buffer, int(use) % len(buffer))
        stage[...] = loaded(View(op, staged_tile(op.operation.operands[1].type)), source, indices)
        arrive(op, barriers, use)

    def view(op, buffer, stage):
        if running().computes:
            running().views[running().warpgroup] += 1
        return [stage_of(buffer, stage).copy()]

    def store(op, tile, memory, *indices):
        view = View(op, op.tile.type)
        index, order, valid = place(view, memory.shape, indices)
        rows, *columns = joined_sizes(view, valid)
        own = slice(running().rows.start, min(running().rows.stop, rows))
        if all(valid) and own.start < own.stop:
            target = np.transpose(memory[index], np.argsort(order))
            counted = target.shape[:-1] if columns else target.shape
            target[np.unravel_index(np.arange(own.start, own.stop), counted)] = tile[(own, *map(slice, columns))]

    def raise_flag(op, bad, flags, number):
        flags[number % flags.size] |= int(bad[running().rows].any())

    def take(op, numbers, use):
        with running().changed:
            numbers[0] += 1
            return [np.int64(numbers[0] - 1)]

    def tell(op, number, numbers, use):
        numbers[use % numbers.size] = number

    def take_turn(op):
        mine = running().warpgroup
        running().until(lambda: running().turns[mine] > 0, lambda: "a turn")
        running().turns[mine] -= 1

    def give_turn(to):
        def change():
            running().turns[to] += 1
            assert running().turns[to] == 1, "a turn is passed on that was not taken"

        running().act(change)

    def start_turns(op):
        if running().warpgroup == 0:
            give_turn(0)

    def pass_turn(op):
        give_turn((running().warpgroup + 1) % running().warpgroups)

    def barrier(op):
        if Threads.active is None:
            running().together.wait(PATIENCE)
        else:  # all threads of the kernel do each op together
            Threads.barrier()

    def meet(op):
        everyone = ALL_WARPS in op.operation.attributes or len(running().roles) == running().warpgroups + 1
        (running().together if everyone else running().computing_meet).wait(PATIENCE)

    found = {
        "memref.alloc": plain(alloc),
        "memref.dim": plain(lambda op, memory, dim: [np.int64(memory.shape[dim])]),
        "gpu.barrier": plain(barrier),
        "tile.warp": plain(lambda op: [np.int64(running().warp.number)]),
        "tile.init_flags": plain(lambda op, flags: None),
        "tile.init_barriers": plain(init_barriers),
        "tile.wait_barrier": plain(wait),
        "tile.arrive": plain(arrive),
        "tile.copy_bulk": plain(copy_bulk),
        "tile.copy_rows": plain(copy_rows),
        "tile.view": plain(view),
        "tile.store": plain(store),
        "tile.raise": plain(raise_flag),
        "tile.raised": plain(lambda op, flags, number: [np.bool_(flags[number % flags.size])]),
        "tile.take": plain(take),
        "tile.tell": plain(tell),
        "tile.told": plain(lambda op, numbers, use: [np.int64(numbers[use % numbers.size])]),
        "tile.any_of_warp": plain(lambda op, tile: [np.bool_(tile[running().rows].any())]),
        "tile.exp2": plain(lambda op, x, table: [np.exp2(x)]),
        "tile.row_shifts": plain(lambda op, *operands: [np.zeros(op.operation.results[0].type.shape)]),
        "tile.start_turns": plain(start_turns),
        "tile.take_turn": plain(take_turn),
        "tile.pass_turn": plain(pass_turn),
        "tile.meet": plain(meet),
    }
    nothing = (CONTROL, "tile.set_registers", "tile.settle", "tile.fill_exp2", "tile.fill_ones")
    return found | {name: plain(lambda op, *operands: None) for name in nothing}


THREADS = 256  # of a block of a kernel without tiles


def run_module(module: ir.Module, inputs: Sequence) -> tuple[list[np.ndarray], list[Running]]:
    """The results of a module's function, and how the blocks of its kernels ran, one after the other."""
    found: list[Running] = []
    kernels = {ir.StringAttr(o.attributes["sym_name"]).value: o for o in ops_in(module.operation, "gpu.func")}

    def launch(op, *operands):
        kernel = kernels[str(op.operation.attributes["kernel"]).rpartition("@")[2]]
        Threads.blocks = int(operands[0])
        if ops_in(kernel, "gpu.thread_id"):  # of no tiles
            threads = kernel.attributes[BLOCK_THREADS].value if BLOCK_THREADS in kernel.attributes else THREADS
            Threads.run(Registers().region(kernel.regions[0]), operands[6:], Threads.blocks, threads)
            return
        bodies: list[Callable[[list], list]] = []  # planned once: that takes as long as a block runs
        for number in range(Threads.blocks):
            Threads.block = number
            found.append(Running(kernel))
            bodies = bodies or [Frame().region(kernel.regions[0]) for _ in found[-1].roles]
            found[-1].run(bodies, operands[6:])

    own = rules(lambda: found[-1]) | {
        "gpu.launch_func": plain(launch),
        "tile.tensor_map": plain(lambda op, memory, *sizes: [memory]),
    }
    inside = own.pop("memref.alloc")
    outside = interface._rules["memref.alloc"]  # of the host
    own["memref.alloc"] = lambda op, frame: (inside if _is_in_kernel(op) else outside)(op, frame)
    before = {name: interface._rules.get(name) for name in own}
    interface._rules.update(own)
    try:
        return evaluate(module, inputs), found
    finally:
        for name in own:
            del interface._rules[name]
        interface._rules.update({name: rule for name, rule in before.items() if rule is not None})


def _is_in_kernel(op: ir.OpView) -> bool:
    return any(outer.name == "gpu.func" for outer in ancestors(op.operation))
