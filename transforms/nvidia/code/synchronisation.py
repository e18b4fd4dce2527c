"""Emits what warps with roles do: barriers in shared memory, copies by the copy engine, turns, registers.

Whatever one thread alone does stands under a predicate within the assembly: a branch would make ptxas give up the
registers that all threads of a warp share. (PTX ISA, "mbarrier", "cp.async.bulk.tensor", "setmaxnreg", "barrier".)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects.mlir import ir
from ..architecture import RESERVED
from .thread import EQ, Shared, Thread, add, asm, compare, constant, create, div, i32, mul, rem, select, shuffled

REGISTERS = 65536  # of a multiprocessor
BARRIER = 8  # bytes
FLAG = 4
MEETING = 15  # a named barrier
FIRST_TURN = 1  # the named barrier of the first warpgroup's turn; 0 is all threads'
FIRST_OF_WARPGROUP = 8  # that of the first warpgroup alone


@dataclass(frozen=True)
class Barriers:
    """Barriers in shared memory, one for each stage of a buffer. They are `offset` bytes behind an address that a
    kernel's barriers have in common: what is computed for a use of one buffer serves others, and offsets are part of
    instructions."""

    origin: ir.Value
    offset: int
    stages: int

    def at(self, use: ir.Value) -> ir.Value:
        """The address of the barrier for that use of the buffer, less the offset."""
        return self.origin if self.stages == 1 else add(self.origin, mul(rem(use, self.stages), BARRIER))

    def init(self, arrivals: int, thread: Thread) -> None:
        for stage in range(self.stages):
            asm(
                "{ .reg .pred p; setp.eq.s32 p, $1, 0; "
                f"@p mbarrier.init.shared::cta.b64 [$0+{self.offset + BARRIER * stage}], {arrivals}; }}",
                "r,r",
                [self.origin, thread.number],
            )
        asm("fence.mbarrier_init.release.cluster;", "", [])

    def wait(self, use: ir.Value, behind: int) -> None:
        """Until the phase of that use is complete, or the one `behind` before it."""
        phase = use if self.stages == 1 else div(use, self.stages)
        parity = rem(add(phase, behind), 2)
        asm(
            f"{{ .reg .pred p; wait: mbarrier.try_wait.parity.shared::cta.b64 p, [$0+{self.offset}], $1; "
            "@p bra.uni done; bra.uni wait; done: }",
            "r,r",
            [self.at(use), parity],
        )

    def arrive(self, use: ir.Value, thread: Thread, each: bool = False) -> None:
        """One arrival for the warp; `each`: one of each of its threads, after what that thread has done."""
        arrival = f"mbarrier.arrive.shared::cta.b64 _, [$0+{self.offset}];"
        if each:
            asm(arrival, "r", [self.at(use)])
        else:
            asm(f"{{ .reg .pred p; setp.eq.s32 p, $1, 0; @p {arrival} }}", "r,r", [self.at(use), thread.lane])


@dataclass(frozen=True)
class Flags:
    """Flags in shared memory, a word each."""

    address: ir.Value
    count: int

    def _at(self, number: ir.Value) -> ir.Value:
        return add(self.address, mul(rem(number, self.count), FLAG))

    def init(self, thread: Thread) -> None:
        for first in range(0, self.count, thread.threads):
            asm(
                f"{{ .reg .pred p; setp.lt.s32 p, $1, {self.count - first}; @p st.shared.b32 [$0], 0; }}",
                "r,r",
                [add(self.address, add(mul(thread.number, FLAG), FLAG * first)), thread.number],
            )

    def raise_(self, number: ir.Value, conditions: Sequence[ir.Value]) -> None:
        """Every thread that has a true condition sets the flag."""
        found = _any(conditions)
        asm(
            "{ .reg .pred p; setp.ne.s32 p, $1, 0; @p st.shared.b32 [$0], 1; }",
            "r,r",
            [self._at(number), create("arith.extui", i32(), found)],
        )

    def tell(self, value: ir.Value, number: ir.Value, thread: Thread) -> None:
        """One lane writes what all of its warp have."""
        asm(
            "{ .reg .pred p; setp.eq.s32 p, $2, 0; @p st.shared.b32 [$0], $1; }",
            "r,r,r",
            [self._at(number), value, thread.lane],
        )

    def told(self, number: ir.Value, thread: Thread) -> ir.Value:
        """One lane reads, and gives it to all of its warp: its arrival behind that is theirs, too."""
        return _of_first_lane("ld.shared.b32 $0, [$1];", "r", self._at(number), thread)

    def raised(self, number: ir.Value) -> ir.Value:
        (word,) = asm("ld.shared.b32 $0, [$1];", "=r,r", [self._at(number)], [i32()])
        return compare(EQ, shuffled(word, "idx", 0), constant(i32(), 1))


def take(address: ir.Value, thread: Thread) -> ir.Value:
    """A number in memory, which one lane of the warp reads and adds 1 to; all lanes get it."""
    return _of_first_lane("atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", "l", address, thread)


def _of_first_lane(instruction: str, constraint: str, address: ir.Value, thread: Thread) -> ir.Value:
    """The word that an instruction gives the first lane of a warp, which alone does it, in all of them."""
    (word,) = asm(
        f"{{ .reg .pred p; setp.eq.s32 p, $2, 0; mov.b32 $0, 0; @p {instruction} }}",
        f"=&r,{constraint},r",
        [address, thread.lane],
        [i32()],
    )
    return shuffled(word, "idx", 0)


def _any(conditions: Sequence[ir.Value]) -> ir.Value:
    found = conditions[0]
    for other in conditions[1:]:
        found = create("arith.ori", found.type, found, other)
    return found


def any_of_warp(conditions: Sequence[ir.Value]) -> ir.Value:
    """Whether any thread of the warp has a true condition."""
    flag = create("arith.extui", i32(), _any(conditions))
    (word,) = asm(
        "{ .reg .pred p; setp.ne.s32 p, $1, 0; vote.sync.any.pred p, p, -1; selp.b32 $0, 1, 0, p; }",
        "=r,r",
        [flag],
        [i32()],
    )
    return compare(EQ, word, constant(i32(), 1))


def meet(thread: Thread, all_warps: bool) -> None:
    """All, or all but the producer's other warps."""
    asm(f"bar.sync {MEETING}, {thread.threads - (0 if all_warps else 96)};", "", [])


def meet_in_warpgroup(thread: Thread) -> None:
    asm("bar.sync $0, 128;", "r", [add(div(thread.warp, 4), FIRST_OF_WARPGROUP)])


def copy_bulk(
    tensor_map: ir.Value,
    rows: int,
    tile: Shared,
    ready: Barriers,
    use: ir.Value,
    offsets: Sequence[ir.Value],
    thread: Thread,
) -> None:
    """Rows of a tile from memory, column block by column block; the barrier for that use hears of their bytes."""
    columns = tile.line // tile.width
    blocks = -(-tile.inner_size // columns)
    only = "{ .reg .pred p; setp.eq.s32 p, "
    barrier, behind = ready.at(use), ready.offset
    text = (
        f"{only}$1, 0; @p mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0+{behind}], {rows * blocks * tile.line}; }}"
    )
    asm(text, "r,r", [barrier, thread.lane])
    rank = len(offsets)
    places = ", ".join(f"${4 + i}" for i in range(rank))
    for block in range(blocks):
        first, *others = reversed(offsets)
        asm(
            f"{only}$3, 0; @p cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            f"[$0], [$1, {{{places}}}], [$2+{behind}]; }}",
            "r,l,r,r" + ",r" * rank,
            [
                add(tile.address, block * tile.outer_size * tile.line),
                tensor_map,
                barrier,
                thread.lane,
                add(first, columns * block),
                *others,
            ],
        )


def settle(values: Sequence[ir.Value]) -> None:
    """An instruction that needs all of `values`, of 32 bits, and does nothing: ptxas waits for loads before it.

    (It reads a word of shared memory if their exclusive or happens to be its address. A sleep in its place would be a
    branch: see above.)
    """
    values = [v if v.type == i32() else create("arith.bitcast", i32(), v) for v in values]
    lines = ["{ .reg .b32 t; .reg .pred p;", "mov.b32 t, $0;"]
    lines += [f"xor.b32 t, t, ${i};" for i in range(1, len(values))]
    lines += [f"setp.eq.u32 p, t, {RESERVED};", "@p ld.volatile.shared.b32 t, [t]; }"]
    asm(" ".join(lines), ",".join("r" * len(values)), values)


def set_registers(count: int, thread: Thread) -> None:
    at_launch = min(REGISTERS // thread.threads // 8 * 8, 255)
    direction = "inc" if count > at_launch else "dec"
    asm(f"setmaxnreg.{direction}.sync.aligned.u32 {count};", "", [])


def start_turns(warpgroups: int, thread: Thread) -> None:
    """The last warpgroup gives the first one its turn."""
    asm(
        f"{{ .reg .pred p; setp.ge.s32 p, $0, {4 * (warpgroups - 1)}; @p bar.arrive {FIRST_TURN}, 256; }}",
        "r",
        [thread.warp],
    )


def take_turn(thread: Thread) -> None:
    asm("bar.sync $0, 256;", "r", [add(div(thread.warp, 4), FIRST_TURN)])


def pass_turn(warpgroups: int, thread: Thread) -> None:
    mine = div(thread.warp, 4)
    last = compare(EQ, mine, constant(i32(), warpgroups - 1))
    following = select(last, constant(i32(), FIRST_TURN), add(mine, FIRST_TURN + 1))
    asm("bar.arrive $0, 256;", "r", [following])
