"""Ways of writing attention, each a function of queries [2, 4, m, d], keys and values [2, 4 or 2, n, d].

`VARIANTS` has the functions by their names; those in `GROUPED` take keys and values of two heads.
"""

from . import heads, matmuls, scores, softmaxes  # noqa: F401 (they put their functions into the registry)
from .registry import GROUPED, VARIANTS

__all__ = ["GROUPED", "VARIANTS"]
