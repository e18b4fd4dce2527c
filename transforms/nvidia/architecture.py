"""The architectures of GPUs, as far as kernels depend on them."""

from __future__ import annotations

import re
from dataclasses import dataclass

KIB = 1024
MULTIPROCESSORS = 132  # of an H200

# What a block may have of shared memory, in KiB, by architecture (CUDA C++ Programming Guide, compute capabilities).
SHARED_MEMORY = {80: 163, 86: 99, 87: 163, 88: 99, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
TILE_MEMORY = SHARED_MEMORY[90] * KIB - 2048  # of Hopper's blocks, less what aligns tiles and the barriers
# The PTX version that has all instructions in use, by the architecture that PTX is made for. Later ones take that of
# the last before them: the driver compiles it for them. It must know the version (CUDA 11.0, 11.1, 11.4, 11.8, 11.8).
PTX_VERSION = {80: 70, 86: 71, 87: 74, 89: 78, 90: 78}
HOPPER, HOPPER_PTX_VERSION = "sm_90a", 80  # with wgmma and the registers of warpgroups (CUDA 12.0)
OWN_MATMULS = range(100, 120)  # have instructions for matmuls, several times as fast as mma.sync, that are not in use
MOST_COLUMNS = 256  # of wgmma
WARP = 32  # threads
WARPS, ROWS = 4, 64  # of a warpgroup
ARRANGERS = 3  # warps, beside the one that copies, that put 8-bit operands in order
RESERVED = 1024  # bytes of shared memory before a block's own


@dataclass(frozen=True)
class Architecture:
    """What kernels for an architecture may take. `ptx_target`, `ptx_version`: what their PTX says it is for."""

    name: str
    shared_memory: int  # the most bytes of a block
    ptx_target: str
    ptx_version: int

    @property
    def is_hopper(self) -> bool:
        """Whether there are wgmma and the copy engine: sm_90 without its "a" stands for what all GPUs have."""
        return self.name == HOPPER

    @property
    def tile_memory(self) -> int:
        """The most bytes of a block that its tiles may take."""
        return TILE_MEMORY if self.is_hopper else self.shared_memory

    @property
    def note(self) -> str:
        """What a user is to know of the speed of its kernels; "" if nothing."""
        if self.is_hopper or int(self.name.removeprefix("sm_")) not in OWN_MATMULS:
            return ""
        return (
            f"kernels for {self.name} are made of what all GPUs since sm_80 have (mma.sync, cp.async): its own "
            "instructions for matmuls, which are faster, are not in use yet"
        )


def architecture(name: str) -> Architecture:
    """What is known of `name`, "sm_80" and later or "sm_90a". ValueError for others."""
    found = re.fullmatch(r"sm_(\d+)", name)
    number = int(found[1]) if found else 0
    if name == HOPPER:
        return Architecture(name, SHARED_MEMORY[90] * KIB, name, HOPPER_PTX_VERSION)
    if number < min(PTX_VERSION):
        raise ValueError(f"expects a GPU's architecture, sm_80 or later, or sm_90a, but found '{name}'")
    target = max(n for n in PTX_VERSION if n <= number)
    # One that is not known yet has at least what the smallest ones have.
    shared = SHARED_MEMORY.get(number, min(SHARED_MEMORY.values()))
    return Architecture(name, shared * KIB, f"sm_{target}", PTX_VERSION[target])
