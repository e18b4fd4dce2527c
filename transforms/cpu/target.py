"""What of the host's instruction set the passes ask for: by feature, not by name."""

from dataclasses import dataclass

from ..host import cache_bytes, computes_by_halves, host_features
from ..passes import PassError

LINE = 64  # bytes of a line of the cache
VECTOR_BYTES = (0, 16, 32, 64)  # 0: what the host has
# No other CPU than AMD's has sse4a, and on none of those do permutations take the pipes that multiply; what permutes
# vectors of 64 bytes is an instruction of AVX-512.
PERMUTES_APART = {"sse4a", "avx512f"}
# On all others with AVX-512, loads slow multiply-adds of 64 bytes down (docs/cpu-figures.md, "Intel Xeon").
LOADS_COUNT, LOADS_APART = "avx512f", "sse4a"
# What tells that an L1 cache has buffers for few misses, which no feature says: 24 where it has 32 KB (Zen 4), 75 and
# more where it has 48 (Zen 5). Measured with vectors of 64 bytes only (docs/cpu-figures.md, "AMD Zen 4").
SMALL_L1 = 32 << 10
CACHES = ("", "l1", "l2")


@dataclass(frozen=True)
class Target:
    """What the schedule has to know of the machine."""

    vector_bytes: int  # 64, 32 or 16
    registers: int  # vector registers
    permutes_apart: bool = False  # whether permutations take other pipes than multiply-adds do
    loads_count: bool = False  # whether loads cost time beside half as many of them as there are multiply-adds
    asks_l2: bool = False  # whether what is streamed is asked for into the L2 cache, not into L1 (`read_ahead.py`)
    halves: bool = False  # whether vectors of 64 bytes are computed with by halves

    @property
    def is_narrow(self) -> bool:
        """Whether a line of the cache is several vectors."""
        return self.vector_bytes < LINE


def host_target(vector_bytes: int = 0, permutes_apart: str = "", ahead: str = "", halves: str = "") -> Target:
    """The widest vectors that the host has, or those of `vector_bytes`, of which loads are taken to cost nothing, and
    misses to be many at once; `permutes_apart`, `halves`: yes, no, or as there; `ahead`: l1, l2, or as there."""
    if vector_bytes not in VECTOR_BYTES:
        raise PassError(f"vector-bytes is {vector_bytes}, but must be one of {', '.join(map(str, VECTOR_BYTES))}")
    if ahead not in CACHES:
        raise PassError(f"ahead is '{ahead}', but must be one of {', '.join(filter(None, CACHES))}")
    features = host_features()
    asks_l2 = not vector_bytes and "avx512f" in features and cache_bytes(1) <= SMALL_L1
    has_halves = halves == "yes" if halves else not vector_bytes and computes_by_halves()
    loads_count = not vector_bytes and LOADS_COUNT in features and LOADS_APART not in features
    if not vector_bytes:
        vector_bytes = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    many = vector_bytes == 64 or "asimd" in features  # 32 registers
    apart = permutes_apart == "yes" if permutes_apart else features >= PERMUTES_APART
    asks_l2 = ahead == "l2" if ahead else asks_l2
    return Target(vector_bytes, 32 if many else 16, apart, loads_count, asks_l2, has_halves)
