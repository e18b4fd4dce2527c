"""lit: runs the RUN lines of the .mlir files below; ``lit test`` from the repository's root.

Works with the package installed, or with the sources in place: PYTHONPATH=build/import.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import lit.formats

here = pathlib.Path(__file__).resolve().parent
root = here.parent

config.name = "attn-opt"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.excludes = ["Output", "Inputs"]  # noqa: F821
config.test_source_root = str(here)  # noqa: F821
config.test_exec_root = str(root / "build" / "lit")  # noqa: F821

# Tests run in folders of their own: relative paths are made absolute.
paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
for variable in ("HOME", "ATTN_OPT_CACHE_DIR"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]  # noqa: F821
if "ATTN_OPT_CACHE_DIR" not in os.environ:  # leave the user's kernels alone
    config.environment["ATTN_OPT_CACHE"] = "0"  # noqa: F821

# The tools are started once; their server ends with this process, of which it reads.
served, address = str(here / "served_tools.py"), os.path.join(tempfile.mkdtemp(prefix="attn-opt-lit-"), "socket")
server = subprocess.Popen(
    [sys.executable, served, address],
    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
)
if server.stdout.readline() != b"ready\n":
    lit_config.fatal("the tools do not start")  # noqa: F821
lit_config.server = server  # noqa: F821  kept, and with it its standard input
for name in ("attn-opt", "FileCheck"):
    # Only as a word of its own: not in file names.
    command = f"'{sys.executable}' -I -S '{served}' '{address}' {name}"
    config.substitutions.append((rf"(?<![\w./-]){name}(?![\w./-])", command))  # noqa: F821
