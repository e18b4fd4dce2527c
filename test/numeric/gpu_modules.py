"""Modules for NVIDIA GPUs at the level of tiles, run by the reference evaluator without a GPU: launches in their order,
blocks one after the other, and the threads of kernels without tiles at once (`gpu_threads.py`). Memory starts as NaN,
integers as -1, and is so while a copy to it is under way. What is read or written outside of an array is an error.
Floats of 16 and 8 bits are f32 in registers, as they are on a GPU, and rounded where they go to memory, or to the
tensor cores."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from attn_opt.compiler import pipelines
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.reference import arrays
from attn_opt.dialects.reference.evaluator import Frame, evaluate
from attn_opt.dialects.reference.interface import rule
from attn_opt.dialects.tile import dims_of, layout_of, parts_of
from attn_opt.dialects.tile.staging import staged_tile
from attn_opt.transforms.attention import is_matmul
from attn_opt.transforms.nvidia.architecture import HOPPER
from attn_opt.transforms.nvidia.elements import NARROW
from attn_opt.transforms.nvidia.marks import ROUNDED
from attn_opt.transforms.rewriting import ops_in
from gpu_threads import Threads
from harness import CONTEXT, run_passes

# The pass before which modules are run: with a copy engine what follows is who does it, and when.
ENGINE, GENERAL = "assign-layouts", "lower-affine"


@rule("memref.alloc")
def alloc(op, frame):
    kind = op.operation.results[0].type
    poison = np.nan if arrays.is_float(kind) else -1

    def run(operands):
        sizes = iter(operands)
        return [np.full([next(sizes) if s < 0 else s for s in kind.shape], poison, arrays.value_dtype(kind))]

    return run


@rule("memref.cast", "bufferization.to_buffer", "bufferization.to_tensor", "gpu.launch_dependent")
def same_memory(op, frame):
    return lambda operands: operands[:1]


@rule("memref.expand_shape", "memref.collapse_shape")
def reshaped(op, frame):
    groups = [[ir.IntegerAttr(d).value for d in group] for group in op.operation.attributes["reassociation"]]
    kind = op.operation.results[0].type
    collapses = op.operation.name == "memref.collapse_shape"

    def run(operands):
        memory, *sizes = operands
        if collapses:
            shape = [int(np.prod([memory.shape[d] for d in group])) for group in groups]
        else:
            dynamic = iter(sizes)
            shape = [next(dynamic) if s < 0 else s for s in kind.shape]
        found = memory.view()
        found.shape = shape  # an error where that would be a copy
        return [found]

    return run


@rule("memref.get_global")
def get_global(op, frame):
    name = ir.FlatSymbolRefAttr(op.operation.attributes["name"]).value
    module = op.operation
    while module.name != "gpu.module":
        module = module.parent.operation
    (of_name,) = [o for o in ops_in(module, "memref.global") if ir.StringAttr(o.attributes["sym_name"]).value == name]
    kind = op.operation.results[0].type
    values = arrays.constant(of_name.attributes["initial_value"]).reshape(kind.shape)
    return lambda operands: [values]


@rule("gpu.launch_func")
def launch(op, frame):
    path = str(op.operation.attributes["kernel"]).split("::")
    module = op.operation
    while module.name != "builtin.module":
        module = module.parent.operation
    named = [o for o in ops_in(module, "gpu.func") if ir.StringAttr(o.attributes["sym_name"]).value == path[1][1:]]
    (kernel,) = named
    threads = kernel.attributes["tile.threads"].value if "tile.threads" in kernel.attributes else 256
    body, has_tiles = Registers().region(kernel.regions[0]), not ops_in(kernel, "gpu.thread_id")

    def run(operands):
        Threads.blocks = int(operands[0])
        if not Threads.blocks:  # nor does the runtime launch it
            return []
        Launches.kernels.append(path[1][1:])
        if has_tiles:
            for number in range(Threads.blocks):
                Threads.block = number
                Copies.groups = [[]]
                body(list(operands[6:]))
        else:
            Threads.run(body, operands[6:], Threads.blocks, threads)
        return []

    return run


class Registers(Frame):
    """A kernel's values."""

    def __init__(self):
        super().__init__(round_values=True)

    def _rounded(self, op):
        found = super()._rounded(op)
        return found if ROUNDED in op.operation.attributes else [(i, np.dtype(np.float32)) for i, _ in found]

    def _step(self, op, local, live):
        step = super()._step(op, local, live)
        narrow = [(i, arrays.storage_dtype(op.operation.operands[i].type)) for i in _leaving(op.operation)]
        if narrow:
            step.meaning = _rounding(step.meaning, narrow)
        return step


STORES = ("tile.store", "tile.store_shared", "memref.store", "vector.store", "arith.bitcast")


def _leaving(op):
    """Which operands leave registers, and have a type that is narrower than those."""
    count = 2 if op.name == "linalg.generic" and is_matmul(op) else int(op.name in STORES or _is_conversion(op))
    return [i for i in range(count) if isinstance(arrays.element_type(op.operands[i].type), NARROW)]


def _is_conversion(op):
    return op.name == "tile.convert_layout" and layout_of(op.results[0].type) in ("operand_a", "paired_a", "shared")


def _rounding(meaning, narrow):
    def run(operands):
        for i, dtype in narrow:
            operands[i] = np.asarray(operands[i]).astype(dtype).astype(np.float64)[()]
        return meaning(operands)

    return run


class Launches:
    """The kernels that ran, in their order."""

    kernels: list[str] = []  # noqa: RUF012


def place(view, shape, operands):
    """The part of a memory, in its order of dimensions, that a tile is, whose joined dimensions are apart; which
    dimension of the tile each is; its valid sizes. Where no element is valid, the place may be anywhere."""
    rank, joined = view.memory.type.rank, dims_of(view)
    offsets, sizes = operands[:rank], operands[rank:]
    dims, valid = [], []
    for dim, size, extent in zip(joined, sizes, view.tile_shape, strict=True):
        parts = parts_of(dim, extent)
        inner = math.prod(n for _, n in parts[1:])
        assert size % inner == 0, "rows that are joined are there as a whole"
        dims += [d for d, _ in parts]
        valid += [int(np.clip(size // inner, 0, extent)), *(n for _, n in parts[1:])]
    counts = [valid[dims.index(d)] if d in dims else 1 for d in range(rank)]
    if all(valid):
        inside = all(o >= 0 and o + n <= size for o, n, size in zip(offsets, counts, shape, strict=True))
        assert inside, f"{counts} elements from {[int(o) for o in offsets]} on leave an array of {shape}"
    index = [slice(o, o + n) if d in dims else int(o) for d, (o, n) in enumerate(zip(offsets, counts, strict=True))]
    return tuple(index), [dims.index(d) for d in sorted(d for d in dims if d >= 0)], valid


class View:
    def __init__(self, op, tile):
        self.memory, self.attributes, self.tile_shape = op.memory, op.operation.attributes, tile.shape
        self.dims = op.dims


def loaded(view, memory, indices):
    """A tile of a memory, 0 where it is not valid."""
    index, order, valid = place(view, memory.shape, indices)
    found = np.zeros(view.tile_shape, memory.dtype)
    if all(valid):
        spread = [1 if d not in order else n for d, n in enumerate(valid)]
        part = np.transpose(memory[index], np.argsort(order)).reshape(spread)
        sizes = joined_sizes(view, valid)
        found[tuple(map(slice, sizes))] = np.broadcast_to(part, valid).reshape(sizes)
    return found


def joined_sizes(view, valid):
    """The valid sizes of a tile's dimensions, of those of which they are joined."""
    left = iter(valid)
    return [math.prod(next(left) for _ in parts_of(dim)) for dim in dims_of(view)]


@rule("tile.load")
def load(op, frame):
    view = View(op, op.operation.results[0].type)
    return lambda operands: [loaded(view, operands[0], operands[1:])]


@rule("tile.store")
def store(op, frame):
    view = View(op, op.tile.type)

    def run(operands):
        tile, memory, *indices = operands
        index, order, valid = place(view, memory.shape, indices)
        if all(valid):
            part = tile[tuple(map(slice, joined_sizes(view, valid)))].reshape(valid)
            memory[index] = np.transpose(part, order)
        return []

    return run


class Copies:
    """Those to shared memory that are under way, in groups: what to write where. The last group is not closed."""

    groups: list[list] = [[]]  # noqa: RUF012


@rule("tile.copy_async")
def copy_async(op, frame):
    view = View(op, staged_tile(op.operation.operands[1].type))

    def run(operands):
        memory, buffer, stage, *indices = operands
        found = loaded(view, memory, indices)
        target = stage_of(buffer, stage)
        target[...] = np.nan if target.dtype.kind == "f" else -1
        Copies.groups[-1].append((target, found))
        return []

    return run


@rule("tile.commit_copies")
def commit_copies(op, frame):
    def run(operands):
        Copies.groups.append([])
        return []

    return run


@rule("tile.wait_copies")
def wait_copies(op, frame):
    pending = ir.IntegerAttr(op.operation.attributes["pending"]).value

    def run(operands):
        while len(Copies.groups) - 1 > pending:
            for target, found in Copies.groups.pop(0):
                target[...] = found
        return []

    return run


@rule("tile.view")
def view_of_stage(op, frame):
    def run(operands):
        found = stage_of(*operands)
        found.flags.writeable = False  # its memory is not for other results
        return [found]

    return run


@rule("tile.store_shared")
def store_shared(op, frame):
    def run(operands):
        tile, buffer, stage = operands
        stage_of(buffer, stage)[...] = tile
        return []

    return run


def stage_of(buffer, stage):
    assert 0 <= stage < len(buffer), f"no stage {stage} of {len(buffer)}"
    return buffer[int(stage)].view()


@rule("tile.convert_layout", "tile.wait_matmuls")
def same(op, frame):
    if layout_of(op.operation.results[0].type) == "column":  # a tile's first row
        return lambda operands: [operands[0][0]]
    return lambda operands: operands[:1]


@rule("tile.scale")
def scaled(op, frame):
    factor = 2.0 ** ir.IntegerAttr(op.operation.attributes["exponent"]).value
    return lambda operands: [operands[0] * factor]


def lowered(
    text: str, last: str = "", tile_sizes: str = "", version: str = "", is_fused: bool = False, **options: Any
) -> ir.Module:
    """A graph, or what a kernel has at the level "fused", as a module that `run` takes; options as those of the target.
    `last`: the pass before which it is run, if not the usual one. `version`: the function that is to be run, if not the
    graph's."""
    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        known = ("arch", "copy_engine", "any_strides")
        machine = pipelines.machine("nvidia", **{n: options[n] for n in known if n in options})
        sizes = f" tile-sizes={tile_sizes}" if tile_sizes else ""
        fusion = ["raise-attention", *(["version-functions"] if version else [])]
        fusion.append(f"fuse-attention{{machine={machine}{sizes}}}")
        passes = [*([] if is_fused else fusion), *pipelines.nvidia(**options)]
        names = [p.partition("{")[0] for p in passes]
        last = last or (ENGINE if machine == HOPPER else GENERAL)
        run_passes(passes[: names.index(last)], module)
        return module


def run(module: ir.Module, inputs: Sequence[np.ndarray], version: str = "") -> list[np.ndarray]:
    """The results, and in `Launches` the kernels that made them."""
    Launches.kernels = []
    with module.context:
        return evaluate(module, inputs, entry=version or None)


@functools.lru_cache(maxsize=64)  # of a graph there are tests with other inputs
def _lowered_once(text: str, **options: Any) -> ir.Module:
    return lowered(text, **options)


def run_module(text: str, inputs: Sequence[np.ndarray], version: str = "", **options: Any) -> list[np.ndarray]:
    return run(_lowered_once(text, version=version, **options), inputs, version)
