"""What passes ask of the machine that compiles, by feature and not by name."""

import ctypes
import functools
import mmap
import pathlib
import platform
import sys

from .passes import PassError

DEFAULT_CACHES = {1: 32 << 10, 2: 1 << 20, 3: 8 << 20}


@functools.cache
def host_features() -> frozenset[str]:
    """The CPU's features as LLVM and Linux spell them ("avx2", "avx512f", …); empty if they cannot be read. "fp256" is
    AMD's name for vector units of 32 bytes."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    found = set(line.partition(":")[2].split())
                    if "amx_tile" in found and _cpuid(7, 1)[0] >> 21 & 1:  # Linux may be older than the feature
                        found.add("amx_fp16")
                    if "sse4a" in found and _cpuid(_AMD_UNITS, 0)[0] >> 2 & 3 == 1:
                        found.add("fp256")
                    return frozenset(found)
    except OSError:
        pass
    return frozenset()


@functools.cache
def cpu_name() -> str:
    """What the CPU is called, for people."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(("model name", "Model")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


_AMD_UNITS = 0x8000001A  # eax: bit 2 FP256, bit 3 FP512

# push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx; cpuid; mov [r8 + …], eax, ebx, ecx, edx; pop rbx; ret
_CPUID = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")


def _cpuid(leaf: int, subleaf: int) -> list[int]:
    """What x86's CPUID leaves in eax, ebx, ecx and edx; zeros where code in memory of ours may not run."""
    found = (ctypes.c_uint32 * 4)()
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except (OSError, AttributeError):
        return list(found)
    code.write(_CPUID)
    function = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
    function(ctypes.addressof(ctypes.c_char.from_buffer(code)))(leaf, subleaf, found)
    return list(found)


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


def computes_by_halves() -> bool:
    """Whether the units that compute with vectors of 64 bytes have 32 (AMD Zen 4), which no other feature tells."""
    return host_features() >= {"avx512f", "fp256"}


# Instructions that multiply matrices of narrow types:
#   amx-fp16  tiles of 16 × 16 sums, each of 32 products of bf16 or f16 per step (AMX-TILE, AMX-BF16, AMX-FP16)
#   amx-bf16  the same of bf16 alone; f16 is two numbers of bf16 (`cpu/vectors/tile_panels.py`)
#   dot       vectors of 16 sums, each of two products of bf16 (AVX512-BF16)
#   none      f32 multiply-adds
# CPUs that have tiles run the dot product at half the rate of f32's multiply-adds: it is for those that have none.
UNITS = ("amx-fp16", "amx-bf16", "dot", "none")
AMX_FEATURES = {"amx_tile", "amx_bf16"}
DOT_FEATURES = {"avx512f", "avx512bw", "avx512vl", "avx512_bf16"}


def matrix_unit(choice: str = "") -> str:
    """The unit in use: `choice`, or the best that the host has and the system lets this process use."""
    if choice:
        if choice not in UNITS:
            raise PassError(f"unknown matrix instructions '{choice}'; known: {', '.join(UNITS)}")
        return choice
    if host_features() >= AMX_FEATURES:
        if not tiles_allowed():
            return "none"
        return "amx-fp16" if "amx_fp16" in host_features() else "amx-bf16"
    return "dot" if host_features() >= DOT_FEATURES else "none"


def can_multiply_tiles(unit: str) -> bool:
    """True if this process may use the instructions of a unit that has tiles."""
    needed = AMX_FEATURES | ({"amx_fp16"} if unit == "amx-fp16" else set())
    return host_features() >= needed and tiles_allowed()


def is_refused() -> bool:
    """True if the host has tiles that this process may not use."""
    return host_features() >= AMX_FEATURES and not tiles_allowed()
