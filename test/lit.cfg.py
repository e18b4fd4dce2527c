"""lit: runs the RUN lines of the .mlir files below; ``lit test`` from the repository's root.

Works with the package installed, or with the sources in place: PYTHONPATH=build/import.
"""

import os
import pathlib
import sys

import lit.formats

here = pathlib.Path(__file__).resolve().parent
root = here.parent

config.name = "attn-opt"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.excludes = ["Output", "Inputs"]  # noqa: F821
config.test_source_root = str(here)  # noqa: F821
config.test_exec_root = str(root / "build" / "lit")  # noqa: F821

# Tests run in folders of their own: relative paths are made absolute. lit's own `cat` and `diff` overwrite PYTHONPATH
# for the lines that follow, so the commands set it anew.
paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
for variable in ("HOME", "ATTN_OPT_CACHE_DIR"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]  # noqa: F821
if "ATTN_OPT_CACHE_DIR" not in os.environ:  # leave the user's kernels alone
    config.environment["ATTN_OPT_CACHE"] = "0"  # noqa: F821

python = f"env PYTHONPATH='{os.pathsep.join(paths)}' '{sys.executable}'"
tools = {
    "attn-opt": f"{python} -m attn_opt.compiler.tools.attn_opt",
    "attn-run": f"{python} -m attn_opt.compiler.tools.attn_run",
    "FileCheck": f"{python} -m filecheck",
}
for name, command in tools.items():
    # Only as a word of its own: not in file names.
    config.substitutions.append((rf"(?<![\w./-]){name}(?![\w./-])", command))  # noqa: F821
