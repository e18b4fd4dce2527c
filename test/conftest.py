"""Tests keep compiled kernels in a folder of their own, one for all processes: they see none of the user's, and leave
none."""

import os
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="attn-opt-test-")
    os.environ["ATTN_OPT_CACHE_DIR"] = _folder.name
