"""What passes ask of the machine that compiles, by feature and not by name."""

import ctypes
import functools
import pathlib
import platform
import sys

DEFAULT_CACHES = {1: 32 << 10, 2: 1 << 20}


@functools.cache
def host_features() -> frozenset[str]:
    """The CPU's features as LLVM and Linux spell them ("avx2", "avx512f", …); empty if they cannot be read."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


@functools.cache
def tiles_allowed() -> bool:
    """Asks Linux, once, for this process's leave to use AMX's tile registers (arch_prctl, ARCH_REQ_XCOMP_PERM)."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0


@functools.cache
def cache_bytes(level: int) -> int:
    """The size of one core's data cache of that level in bytes; a usual one where the system does not tell."""
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "level").read_text().strip() == str(level) and "Instr" not in (index / "type").read_text():
                text = (index / "size").read_text().strip()
                return int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0)
        except (OSError, ValueError):
            continue
    return DEFAULT_CACHES[level]
