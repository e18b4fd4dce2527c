"""What of the host's instruction set the passes ask for: by feature, not by name."""

from ..host import host_features
from .schedule import Target

OF_AMD = "sse4a"  # no other CPU has it, and on none of AMD's do permutations take the pipes that multiply


def host_target(vector_bytes: int = 0, permutes_apart: str = "") -> Target:
    """The widest vectors that the host has, or those of `vector_bytes`; `permutes_apart`: yes, no, or as there."""
    features = host_features()
    if not vector_bytes:
        vector_bytes = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    many = (vector_bytes == 64 and "avx512vl" in features) or "asimd" in features  # 32 registers
    apart = permutes_apart == "yes" if permutes_apart else OF_AMD in features
    return Target(vector_bytes, 32 if many else 16, apart)
