"""Modules for NVIDIA GPUs at the level of tiles, run by the reference evaluator without a GPU: launches in their order,
blocks and threads one after the other. Memory starts as NaN, integers as -1."""

from collections.abc import Sequence

import numpy as np
from attn_opt.compiler import pass_manager, pipelines
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.reference import arrays
from attn_opt.dialects.reference.evaluator import Frame, evaluate
from attn_opt.dialects.reference.interface import rule
from attn_opt.dialects.tile import dims_of
from attn_opt.transforms.rewriting import ops_in

TILES = "assign-layouts"  # the pass before which modules are run


class Block:
    """Of which block, and thread of it, the ops are being evaluated, of how many."""

    number = 0
    thread = 0
    count = 0


@rule("gpu.block_id")
def block_id(op, frame):
    return lambda operands: [np.int64(Block.number)]


@rule("gpu.thread_id")
def thread_id(op, frame):
    return lambda operands: [np.int64(Block.thread)]


@rule("gpu.grid_dim")
def grid_dim(op, frame):
    return lambda operands: [np.int64(Block.count)]


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


@rule("memref.load")
def load_element(op, frame):
    def run(operands):
        memory, *at = operands
        assert all(0 <= i < n for i, n in zip(at, memory.shape, strict=True)), f"{at} leaves {memory.shape}"
        return [memory[tuple(at)]]

    return run


@rule("memref.store")
def store_element(op, frame):
    def run(operands):
        value, memory, *at = operands
        assert all(0 <= i < n for i, n in zip(at, memory.shape, strict=True)), f"{at} leaves {memory.shape}"
        memory[tuple(at)] = value
        return []

    return run


@rule("gpu.launch_func")
def launch(op, frame):
    path = str(op.operation.attributes["kernel"]).split("::")
    module = op.operation
    while module.name != "builtin.module":
        module = module.parent.operation
    named = [o for o in ops_in(module, "gpu.func") if ir.StringAttr(o.attributes["sym_name"]).value == path[1][1:]]
    (kernel,) = named
    threads = 1
    if ops_in(kernel, "gpu.thread_id"):
        threads = (
            ir.IntegerAttr(kernel.attributes["tile.threads"]).value if "tile.threads" in kernel.attributes else 256
        )
    body = Frame(round_values=True).region(kernel.regions[0])

    def run(operands):
        Launches.kernels.append(path[1][1:])
        Block.count = int(operands[0])
        for number in range(Block.count * threads):
            Block.number, Block.thread = divmod(number, threads)
            body(list(operands[6:]))
        return []

    return run


class Launches:
    """The kernels that ran, in their order."""

    kernels: list[str] = []  # noqa: RUF012


def place(view, operands):
    """The part of a memory, in its order of dimensions, that a tile is; which dimension of the tile each is; its valid
    sizes."""
    rank, dims = view.memory.type.rank, dims_of(view)
    offsets, sizes = operands[:rank], operands[rank:]
    valid = [int(np.clip(size, 0, extent)) for size, extent in zip(sizes, view.tile_shape, strict=True)]
    index = [slice(o, o + valid[dims.index(d)]) if d in dims else int(o) for d, o in enumerate(offsets)]
    return tuple(index), [dims.index(d) for d in sorted(d for d in dims if d >= 0)], valid


class View:
    def __init__(self, op, tile):
        self.memory, self.attributes, self.tile_shape = op.memory, op.operation.attributes, tile.shape
        self.dims = op.dims


@rule("tile.load")
def load(op, frame):
    kind = op.operation.results[0].type
    view = View(op, kind)

    def run(operands):
        memory, *indices = operands
        index, order, valid = place(view, indices)
        found = np.zeros(kind.shape, memory.dtype)
        part = memory[index]
        spread = [1 if d not in order else n for d, n in enumerate(valid)]
        found[tuple(map(slice, valid))] = np.transpose(part, np.argsort(np.argsort(order))).reshape(spread)
        return [found]

    return run


@rule("tile.store")
def store(op, frame):
    view = View(op, op.tile.type)

    def run(operands):
        tile, memory, *indices = operands
        index, order, valid = place(view, indices)
        memory[index] = np.transpose(tile[tuple(map(slice, valid))], order)
        return []

    return run


@rule("tile.convert_layout", "tile.wait_matmuls")
def same(op, frame):
    return lambda operands: operands[:1]


def run_module(text: str, inputs: Sequence[np.ndarray], **options) -> list[np.ndarray]:
    """The results of a graph, and in `Launches` the kernels that made them; options as those of the target."""
    context = make_context()
    with context:
        module = parse_module(text, "test.mlir", context)
        machine = pipelines.machine("nvidia", *(options[n] for n in ("arch",) if n in options))
        passes = ["raise-attention", f"fuse-attention{{machine={machine}}}", *pipelines.nvidia(**options)]
        names = [p.partition("{")[0] for p in passes]
        pass_manager.run(passes[: names.index(TILES)], module)
        Launches.kernels = []
        return evaluate(module, inputs)
