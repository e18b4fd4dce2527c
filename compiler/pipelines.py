"""One flat list of passes per target. Names are passes of ours or of upstream, in textual pipeline syntax."""

import typing
from collections.abc import Callable
from typing import Any

from ..transforms.cpu.matrix_unit import has_tiles
from ..transforms.host import can_multiply_tiles, matrix_unit
from ..transforms.limits import MOST_MULTIPROCESSORS, MOST_PARTS
from ..transforms.nvidia.architecture import HOPPER, MULTIPROCESSORS, architecture
from .env import MOST_THREADS
from .pass_options import option_values
from .runtime.cpu import openmp_library

RAISED = "share-attentions"  # the pass after which attention is in its normal form, once
# Which pass ends a level of the IR (README, "The folders are the pipeline"): `kernel.stages()`, `--print-ir`, reports.
STAGE_AFTER = {
    RAISED: "raised",
    "transform-interpreter": "fused",
    "fuse-attention": "fused",
    "split-masked-tiles": "online",
    "convert-bufferization-to-memref": "buffers",
    "expand-math": "target",
    "check-lowered": "llvm",
    # For GPUs.
    "outline-kernels": "tiles",
    "assign-layouts": "layouts",
    "stage-loads": "scheduled",
    "tiles-to-nvvm": "nvvm",
}
# After which passes the IR is verified in the library (and before each canonicalize); after all of them that would take
# a third of the time. Before tensors become buffers, too: of values that are read before they are made, bufferization
# makes memory that is.
VERIFIED_AFTER = (*STAGE_AFTER, "protect-arguments")

TO_LINALG = "convert-elementwise-to-linalg"  # of arith and math on tensors; raise-attention knows linalg alone
# Of canonicalize: once over the IR, and what changes on the way again. To see that nothing is left takes as long.
ONCE = "{max-iterations=1 region-simplify=disabled}"
TO_SCF = "lift-cf-to-scf"  # branches between blocks; passes know regions of one
# As upstream's buffer-deallocation-pipeline, each canonicalize of which collects the patterns of all dialects anew.
DEALLOCATION = [
    "expand-realloc{emit-deallocs=false}",
    f"canonicalize{ONCE}",
    "ownership-based-buffer-deallocation",
    f"canonicalize{ONCE}",
    "buffer-deallocation-simplification",
    "bufferization-lower-deallocations",
    "cse",
    f"canonicalize{ONCE}",
]
STAGES = 0  # by rule
PARTS_TOGETHER = 32  # whose states a thread reads at once, an element of each
BUSY_ROWS = 64  # and more, and a block computes for longer than it reads keys and values
SIBLINGS_COLUMNS = 384  # of all products of two nests in one, a register for two of which threads have
FEW_ROWS = 16  # less than that, by dimension, and it counts how fast keys and values are read (decoding)
# Of at least so many scores what is added is looked at. In vain, for 16 heads that takes 4% on CPUs, 9% on an H200.
ADDED_SCORES = {"cpu": 1 << 24, "nvidia": 1 << 28}
TASKS_PER_THREAD = 2  # fewer blocks than that, and keys are split: one thread's rest is the others' wait


def online(
    parts: int = 0,
    workers: int = 1,
    tests: bool = True,
    added: int = 0,
    together: int = 2,
    few_rows: int = 0,
    busy_rows: int = 0,
    whole_tiles: bool = False,
    canonicalizing: str = "",
) -> list[str]:
    """From linalg on tensors, fused or not, to loops on linalg alone: the same for all targets.

    `parts`, `workers`, `busy_rows`, `together`: see `split-keys`. `few_rows`: see it, `split-masked-tiles` and
    `mark-few-rows`; `whole_tiles`: `split-masked-tiles`.
    `tests`: iterations may be left out by what their tile of a mask is; else those that are not are listed before all
    loops. `added`: scores from which on numbers that are added to them are looked at before all loops.
    `canonicalizing`: options of canonicalize.
    """
    options = {
        "split-keys": f"{{parts={parts} workers={workers} few-rows={few_rows} busy-rows={busy_rows} "
        f"together={together}}}",
        "split-masked-tiles": f"{{tests={int(tests)} lists={int(not tests)} added={added} "
        f"few-rows={few_rows} whole-tiles={int(whole_tiles)}}}",
        "mark-few-rows": f"{{rows={few_rows}}}",
        "canonicalize": canonicalizing,
    }
    return [name + options.get(name, "") for name in ONLINE]


ONLINE = [
    TO_SCF,
    TO_LINALG,  # where nothing was to be fused, or a script said what
    "convert-linalg-softmax",  # what raise-attention found no attention around
    # The online level. diag first: as a matrix it would cost a matmul.
    "fold-diag",
    "canonicalize",
    "drop-asserts",  # after it: those that are known to hold are gone
    "cse",  # parallel-loops compares offsets and sizes: equal ones become one value
    # Tensors that loops carry and no one reads would keep the loops from being parallel.
    "fresh-inits",
    "remove-dead-values",
    # Loops over disjoint tiles; while still on tensors, where that can be proven.
    "parallel-loops",
    "canonicalize",  # slices of a whole tile fold away
    "defer-division",  # after parallel-loops: the division stands in the parallel loop, where its tile is at hand
    "exp-to-exp2",
    "mark-few-rows",  # before keys are split: what merges their parts has few rows, too
    "split-keys",  # after them: what it copies, and what it merges, is what the loop carries then
    "split-masked-tiles",  # after all that looks at the body, of which it makes copies
    # Ops of ours into linalg.
    "decompose-linalg-ext",
    "canonicalize",
    "cse",
]


def lower(target: str) -> list[str]:
    """The passes from linalg on tensors (fused or not) to what the target's runtime loads; `target` may have options,
    the arguments of its pipeline: ``nvidia{arch=sm_80 keep-maximum=0}``."""
    name, options = _parsed(target)
    return _pipelines()[name](**options)


def _pipelines() -> dict[str, Callable[..., list[str]]]:
    return {"cpu": cpu, "nvidia": nvidia}


def _parsed(target: str) -> tuple[str, dict[str, Any]]:
    """A target's name, and its options by the names of its pipeline's arguments."""
    name, opened, options = target.strip().partition("{")
    if bool(opened) != options.endswith("}"):
        raise ValueError(f"target '{target}' has one of the braces around its options, as in cpu{{threads=2}}")
    options = options.removesuffix("}")
    known = _pipelines()
    if name not in known:
        raise ValueError(f"unknown target '{name}'; known: {', '.join(known)}")
    kinds = {k: kind for k, kind in typing.get_type_hints(known[name]).items() if k != "return"}
    return name, option_values(f"target '{name}'", options, kinds)


def cpu(
    parallel: bool | None = None,
    vector_bytes: int = 0,
    matrix: str = "",
    parts: int = 0,
    threads: int = 1,
    added_masks: bool = True,
) -> list[str]:
    """For this machine's CPU: registers, vectors, threads; ends in the LLVM dialect.

    `parts`: into how many keys are split; 0 = by the number of `threads` that will run it.
    `parallel`: use OpenMP; None = if its runtime is installed. `vector_bytes`: 64, 32 or 16; 0 = what the host has.
    `matrix`: instructions for products of narrow types, see `transforms/cpu/matrix_unit.py`; empty = what it has.
    `added_masks`: numbers that are added from memory may be a mask, and are looked at first.
    """
    _check_counts(parts=(parts, 0, MOST_PARTS), threads=(threads, 1, MOST_THREADS))
    if parallel is None:
        parallel = openmp_library() is not None
    if 0 < vector_bytes < 64:
        matrix = matrix or "none"  # CPUs with narrower vectors have none
    of_matrix, unit = f"matrix={matrix}" if matrix else "", matrix_unit(matrix)
    workers = TASKS_PER_THREAD * threads if threads > 1 and parallel else 1
    added = ADDED_SCORES["cpu"] * added_masks
    return [
        "check-sizes",
        "check-elements",
        "check-calls",
        "name-functions",
        *online(parts, workers, added=added, few_rows=FEW_ROWS, whole_tiles=True, canonicalizing=ONCE),
        "fuse-siblings",  # once it is settled which of their tiles loops skip
        f"peel-tails{{{of_matrix}}}",  # before the canonicalization that makes sizes static
        "scf-for-loop-canonicalization",
        "fuse-consumers",  # what is done with the output, such as rounding it, is done with its tiles
        "slice-fills",
        "drop-fills",  # after it: what starts from zeros no longer reads those of the whole
        f"canonicalize{ONCE}",
        "cse",
        "own-inits",  # after cse, which merged the inits: what is written to must not be shared
        # Layout: named ops become generics, which any layout suits, and all of them go through one mechanism.
        "linalg-generalize-named-ops",
        "widen-sums",
        "gather-windows",
        "fold-copies",
        "drop-results",
        "drop-units{last=1}",
        "fuse-elements{all=1}",
        "share-elements",  # after it, which computes elements where they are read
        "fuse-rows",
        "parallel-loops",
        f"widen-tiles{{{of_matrix}}}",
        "pad-tiles",
        f"lanes-innermost{{{of_matrix}}}",
        f"canonicalize{ONCE}",
        "cse",
        "sink-scales",  # before the maximum is fused with what it is taken of
        "unscale-maxima",  # after it: of maxima that are scaled once they are found
        "fuse-reductions",
        "round-results",
        "own-inits",
        "write-in-place",  # after it, which tells the outputs apart
        # Buffers. Arguments are the caller's: never written.
        "protect-arguments",
        "eliminate-empty-tensors",  # computes into the slice that a result is inserted into
        "one-shot-bufferize{bufferize-function-boundaries=true allow-return-allocs-from-loops=true"
        " function-boundary-type-conversion=identity-layout-map}",
        f"canonicalize{ONCE}",
        "cse",
        f"canonicalize{ONCE}",
        "convert-vector-to-scf",  # a graph's own transfers, while ops are few: no pass makes any
        # Before deallocation, which would free scratch in each iteration. After it no one allocates.
        "scratch",
        *DEALLOCATION,
        "return-arguments",  # before clones become copies
        "func.func(optimize-allocation-liveness)",  # a layer of a graph has the memory of the last
        "convert-bufferization-to-memref",
        # Vectors.
        "linalg-generalize-named-ops",  # what bufferization made
        "copies-to-linalg",
        "view-windows",
        "forall-to-parallel",
        f"parallelize-linalg{{tasks={4 * threads}}}",
        "collapse-loops",
        f"matrix-contractions{{{of_matrix}}}",
        f"pair-contractions{{{of_matrix}}}",
        f"pair-exponentials{{{of_matrix}}}",
        f"spread-rows{{vector-bytes={vector_bytes}}}",  # before it: such rows need no packing
        f"pack-contractions{{vector-bytes={vector_bytes}}}",  # per task, so that its panels are in its cache
        f"trim-masked-tiles{{vector-bytes={vector_bytes}}}",  # after it: a part of a packed tile needs no packing
        f"share-scratch{{{of_matrix}}}",  # after it, which looks at who uses a tile's scratch
        "roll-loops",  # after it: bodies are the same when their scratch is
        f"stream-rows{{vector-bytes={vector_bytes}}}",  # after it, which looks for whole tiles
        f"vectorize-linalg{{vector-bytes={vector_bytes}}}",
        "convert-linalg-to-loops",  # what cannot be vectorised
        "expand-pairs",
        f"canonicalize{ONCE}",
        "cse",
        "guard-divisions",  # after all that makes vectors, whose lanes over the end of a row hold zeros
        "loop-invariant-code-motion",
        f"expand-float8{{{'tables=no' if 0 < vector_bytes < 64 else ''}}}",  # tells expand-math what is rounded
        "math-expand-ops{ops=clampf}",
        "expand-math",  # after hoisting: a function of a row is computed once per row
        f"expand-bf16{{vector-bytes={vector_bytes}}}",
        f"canonicalize{ONCE}",
        "cse",
        "func.func(llvm-request-c-wrappers)",  # before private functions come
        # Threads. Bodies in functions of their own, so that their scratch is in a frame of its own.
        "outline-parallel",
        "outline-loops",
        "share-functions",
        *(["single-iterations", "convert-scf-to-openmp", "dynamic-schedule"] if parallel else []),
        "lower-pair-views",
        *(["stream-tiles" if can_multiply_tiles(unit) else "expand-tiles"] if has_tiles(unit) else []),
        # To the LLVM dialect; affine ops appear from expand-strided-metadata.
        "expand-strided-metadata",
        "shift-divisions",  # what of affine ops it takes to do so; the others are lower-affine's
        "lower-affine",
        "keep-rolled",  # before loops are branches, one of which carries what it says
        "rotate-loops",  # after it: its annotations go along
        "convert-scf-to-cf",
        "convert-math-to-llvm",
        "convert-math-to-libm",  # per element of a vector, what has neither a polynomial nor an instruction
        "convert-vector-to-llvm{enable-x86=1 reassociate-fp-reductions=1}",  # after it: it takes vectors apart
        "finalize-memref-to-llvm",
        "convert-to-llvm{filter-dialects=arith,index,ub,func,cf}",  # after it, which reads sizes off constants
        *(["convert-openmp-to-llvm"] if parallel else []),
        "reconcile-unrealized-casts",
        f"canonicalize{ONCE}",  # for readers: LLVM does the rest
        "cse",
        "trivial-dce",  # of descriptors that are taken apart again their making is left, op for op
        "drop-arguments",  # after it: what only makes a descriptor is no use of an argument
        "trivial-dce",
        *([f"limit-features{{vector-bytes={vector_bytes}}}"] if vector_bytes else []),
        "check-lowered",  # translating a left-over op would end the process
    ]


def nvidia(
    arch: str = HOPPER,
    any_strides: bool = False,
    parts: int = 0,
    multiprocessors: int = MULTIPROCESSORS,
    copy_engine: bool = True,
    keep_maximum: bool = True,
    stages: int = STAGES,
    added_masks: bool = True,
) -> list[str]:
    """For NVIDIA GPUs: kernels in the LLVM dialect, and the host's part around their launches.

    `parts`: into how many keys are split; 0 = by the number of `multiprocessors`.
    `any_strides`: kernels that take arrays of any strides, at any address of an element.
    `copy_engine`: on sm_90a, a warp that copies and warpgroups that compute; then `keep_maximum`: tiles of keys after
    the first do without a maximum, and few tiles are computed twice; `stages`: tiles of keys, and as many of values,
    that shared memory holds. `added_masks`: as for the CPU.
    """
    _check_counts(parts=(parts, 0, MOST_PARTS), multiprocessors=(multiprocessors, 1, MOST_MULTIPROCESSORS))
    of = architecture(arch)
    copy_engine = copy_engine and of.is_hopper and not any_strides
    by_threads = f"any-strides={int(any_strides)} multiprocessors={multiprocessors}"
    return [
        "check-sizes",
        "check-elements",
        "check-calls",
        "name-functions",
        "round-probabilities",
        # Its parallel loops become the grid. A test of each tile would have to be the same for a whole block.
        *online(
            parts,
            multiprocessors,
            tests=False,
            added=ADDED_SCORES["nvidia"] * added_masks,
            busy_rows=BUSY_ROWS,
            together=PARTS_TOGETHER,
        ),
        f"fuse-siblings{{sums=1 most-columns={SIBLINGS_COLUMNS}}}",
        "linalg-generalize-named-ops",
        "widen-sums{products=1}",
        "gather-windows{tiles=1}",
        "scans-to-linalg",
        "donated-writes",  # before it, which makes new tensors of such writes
        "scatters-to-linalg",
        "branches-to-selects",  # after it: a write that is guarded is a choice already
        "fold-copies",
        "drop-results",
        "round-shared",  # before any op is computed where it is read
        f"tile-matmuls{{multiprocessors={multiprocessors}{'' if copy_engine else ' rows=128 columns=128'}}}",
        "parallel-loops",
        "expand-before-slices",
        "drop-units",
        "fuse-elements",
        "fuse-consumers{narrow=1}",  # what a matmul's tiles can compute is no producer of the next one
        "recompute-elements",  # after it: which loops read what is settled
        "sums-apart",
        "sum-rows-first",  # both before it, which makes kernels of rows
        f"sink-sums{{any-strides={int(any_strides)}}}",  # which others may take along then
        f"outline-rows{{{by_threads}}}",  # before it: what is made with sums over rows is no producer
        f"outline-producers{{{by_threads}}}",  # before ops become others that it cannot see through
        # Once more: what producers shared with an op that follows other loops is that op's alone now.
        "fuse-elements",
        "fuse-consumers{narrow=1}",
        "canonicalize",
        "cse",  # one value for each size: the axes of tiles are told apart by them
        f"outline-producers{{{by_threads} results=1}}",
        "pieces-to-elements",
        "fuse-elements{all=1 along-sums=1}",  # after them: each op that is left becomes a kernel
        *(["align-rows"] if copy_engine else []),  # before it: what it copies, kernels read as any tensor
        "own-inits",  # after cse: dimensions of equal inits would be one axis
        # Tiles: static shapes, then places, then the order in time. Each works on what the one before decided.
        f"outline-kernels{{any-strides={int(any_strides)}}}",
        *(["outline-pads"] if copy_engine else []),
        # After it: what loops over tiles have taken along is gone.
        f"outline-elements{{any-strides={int(any_strides)}}}",
        "drop-roundings",  # after it: which kernels there are is settled
        "canonicalize",
        "cse",
        "share-kernels",
        f"widen-operands{{native={int(copy_engine)}}}",
        f"assign-layouts{{left-columns={128 if copy_engine else 0}}}",
        "share-elements",  # after it, which gives each op tiles of vectors of its own
        "loop-invariant-code-motion",  # loads and conversions of what no iteration changes, such as Q
        "cse",
        *(
            [
                "stage-operands",
                "start-scores",
                "split-scales",
                "mask-padding",
                "canonicalize",
                "cse",
                "join-loops",
                "reverse-keys",
                "overlap-matmuls",
                "delay-waits",
                "canonicalize",
                "cse",
                *(["keep-maximum"] if keep_maximum else []),
                "rescale-rarely",
                "defer-row-sums",
                f"persistent-blocks{{multiprocessors={multiprocessors}}}",
                "canonicalize",
                "cse",
                "mask-probabilities",
                "tabulate-exponentials",
                "divide-by-products",
                f"specialize-warps{{stages={stages}}}",
                "row-sums-by-matmul",  # after it: which operands are in shared memory, and how, is settled
                "shift-low-rows",  # after all that change maxima, or what exponentials are made of
            ]
            if copy_engine
            else [*(["overlap-matmuls{engine=0}"] if of.is_hopper else []), "defer-row-sums"]
        ),
        "elements-as-stored",  # after all that changes what stands behind loops
        f"stage-loads{{shared-memory={0 if of.is_hopper else of.shared_memory}}}",  # what no copy engine does
        "canonicalize",
        "cse",
        "lower-affine",  # sizes of tiles at the boundary
        "canonicalize",
        "cse",
        f"tiles-to-nvvm{{arch={arch}}}",
        *(["overlap-launches"] if of.ptx_target.startswith("sm_90") else []),
        "gpu.module(convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts,canonicalize,cse)",
        "check-lowered{target=nvidia}",  # translating a left-over op would end the process
    ]


def _check_counts(**counts: tuple[int, int, int]) -> None:
    """An error for an option that is not between the least and the most that it may be, here by its own name: passes
    tell of theirs, which are made of it."""
    for name, (count, least, most) in counts.items():
        if not least <= count <= most:
            raise ValueError(f"option '{name}' expects an integer from {least} to {most}, but found {count}")


def machine(target: str, arch: str = HOPPER, copy_engine: bool = True, any_strides: bool = False) -> str:
    """What tile sizes are chosen for: cpu, or a GPU's architecture, without its copy engine if that is not in use."""
    if target != "nvidia":
        return target
    return arch if copy_engine and not any_strides else arch.removesuffix("a")


def fusion_of(target: str) -> dict[str, Any]:
    """What `fuse-attention` is to know of a target as `lower` takes it: its options by name."""
    name, options = _parsed(target)
    known = {k: v for k, v in options.items() if k in ("arch", "copy_engine", "any_strides")}
    shared = {k: v for k, v in options.items() if k in ("multiprocessors", "threads")}
    return {"machine": machine(name, **known)} | shared


def nvidia_host() -> list[str]:
    """For the host's part of what `nvidia` made, with code in place of kernels: copies and launches, for the CPU."""
    return [
        "host-copies",
        "canonicalize",
        "func.func(gpu-async-region)",  # copies and launches in a row, on one stream
        "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map}",
        "func.func(llvm-request-c-wrappers)",
        "expand-strided-metadata",
        "lower-affine",
        "gpu-to-llvm",
        "finalize-memref-to-llvm",
        "convert-arith-to-llvm",
        "convert-func-to-llvm",
        "reconcile-unrealized-casts",
        "canonicalize",
        "cse",
        "check-lowered{target=nvidia}",
    ]
