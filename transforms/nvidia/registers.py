"""How many registers threads have, by the roles of their warps."""

REGISTERS = 65536  # of a multiprocessor
PRODUCER_REGISTERS = 24
LARGEST_COUNT = 240  # that a thread can ask for, in eights, besides a warpgroup that keeps few


def consumer_registers(warpgroups: int) -> int:
    """Of a thread that computes, where so many warpgroups do, and one more copies: what all have at the launch, less
    what that one keeps. (A warpgroup that asked for more would wait for ever.)"""
    at_launch = REGISTERS // (128 * (warpgroups + 1)) // 8 * 8
    left = at_launch * (warpgroups + 1) - PRODUCER_REGISTERS
    return min(LARGEST_COUNT, left // warpgroups // 8 * 8)
