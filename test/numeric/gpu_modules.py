"""Modules for NVIDIA GPUs at the level of tiles, run by the reference evaluator without a GPU: launches in their order,
blocks and threads one after the other. Memory starts as NaN, integers as -1, and is so while a copy to it is under way.
What is read or written outside of an array is an error."""

import contextlib
import math
from collections.abc import Sequence

import numpy as np
from attn_opt.compiler import pipelines
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.reference import arrays
from attn_opt.dialects.reference.evaluator import Frame, evaluate
from attn_opt.dialects.reference.interface import rule
from attn_opt.dialects.tile import dims_of, parts_of
from attn_opt.dialects.tile.staging import staged_tile
from attn_opt.transforms.nvidia.architecture import HOPPER
from attn_opt.transforms.rewriting import ops_in
from harness import run_passes

# The pass before which modules are run: with a copy engine what follows is who does it, and when.
ENGINE, GENERAL = "assign-layouts", "lower-affine"


class Block:
    """Of which block, and thread of it, the ops are being evaluated, of how many."""

    number = 0
    thread = 0
    count = 0


WARP = 32


class Waiting(Exception):
    """A thread gives what it has of a reduction, and waits for its neighbours."""


class Reductions:
    """Those of a warp, or a block. Its threads run one after the other, as far as a reduction that not all have come
    to, and from the start again: what they write meanwhile is the same each time."""

    done: list[list[float]] = []  # noqa: RUF012
    parts: list[float] = []  # noqa: RUF012
    next = 0
    together = WARP

    @classmethod
    def run(cls, thread, together):
        cls.done, cls.parts, cls.together = [], [0], together
        while cls.parts:
            cls.parts = []
            for _ in range(together):
                cls.next = 0
                with contextlib.suppress(Waiting):
                    thread()
                Block.thread += 1
            Block.thread -= together
            assert len(cls.parts) in (0, together), "some threads pass by a reduction"
            cls.done.append(cls.parts)


@rule("gpu.subgroup_reduce", "gpu.all_reduce")
def reduce_over_threads(op, frame):
    name = str(op.operation.attributes["op"])
    kinds = {"add": np.sum, "mul": np.prod, "maximumf": np.max, "maxnumf": np.fmax.reduce}
    kinds |= {"minimumf": np.min, "minnumf": np.fmin.reduce}
    combine = kinds[name.split()[-1].rstrip(">")]
    of_warp = "cluster_size" in op.operation.attributes
    size = ir.IntegerAttr(op.operation.attributes["cluster_size"]).value if of_warp else None

    def run(operands):
        if Reductions.next == len(Reductions.done):
            Reductions.parts.append(operands[0])
            raise Waiting
        parts, width = Reductions.done[Reductions.next], size or Reductions.together
        first = Block.thread % Reductions.together // width * width
        Reductions.next += 1
        return [combine(parts[first : first + width])]

    return run


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
        if any(np.ndim(i) for i in at):  # of all elements of a tile: those of padding read the nearest one
            return [memory[tuple(np.clip(i, 0, n - 1) for i, n in zip(at, memory.shape, strict=True))]]
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


@rule("vector.load")
def load_piece(op, frame):
    (count,) = op.operation.results[0].type.shape

    def run(operands):
        memory, *at, first = operands
        assert all(0 <= i < n for i, n in zip((*at, first + count - 1), memory.shape, strict=True)), f"{at} {first}"
        assert first % count == 0, f"{count} elements from {first} on are not aligned"
        return [memory[(*at, slice(first, first + count))].copy()]

    return run


@rule("vector.store")
def store_piece(op, frame):
    def run(operands):
        piece, memory, *at, first = operands
        assert all(0 <= i < n for i, n in zip((*at, first + len(piece) - 1), memory.shape, strict=True)), (
            f"{at} {first}"
        )
        memory[(*at, slice(first, first + len(piece)))] = piece
        return []

    return run


@rule("tile.copy_piece")
def copy_piece(op, frame):
    """16 bytes of a row: what is not valid becomes 0, and is not read."""
    source_kind = op.operation.operands[0].type
    count = 128 // source_kind.element_type.width

    def run(operands):
        source, target, *places, left = operands
        *at, first = places[: source.ndim]
        *to, there = places[source.ndim :]
        valid = min(left, count)
        assert valid > 0 and there % count == 0, f"{valid} elements to {there}"
        assert all(0 <= i < n for i, n in zip((*at, first + valid - 1), source.shape, strict=True)), f"{at} {first}"
        assert all(0 <= i < n for i, n in zip((*to, there + count - 1), target.shape, strict=True)), f"{to} {there}"
        target[(*to, slice(there, there + valid))] = source[(*at, slice(first, first + valid))]
        target[(*to, slice(there + valid, there + count))] = 0
        return []

    return run


@rule("vector.extract")
def element_of_piece(op, frame):
    (number,) = ir.DenseI64ArrayAttr(op.operation.attributes["static_position"])
    return lambda operands: [operands[0][number]]


@rule("vector.from_elements")
def piece_of_elements(op, frame):
    kind = arrays.value_dtype(op.operation.results[0].type)
    return lambda operands: [np.array(operands, kind)]


@rule("vector.broadcast")
def piece_of_equals(op, frame):
    kind = op.operation.results[0].type
    return lambda operands: [np.full(kind.shape, operands[0], arrays.value_dtype(kind))]


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
    meeting = {op.name for op in ops_in(kernel, "gpu.subgroup_reduce", "gpu.all_reduce")}
    together = threads if "gpu.all_reduce" in meeting else WARP

    def run(operands):
        Launches.kernels.append(path[1][1:])
        Block.count = int(operands[0])
        for number in range(Block.count * threads):
            Block.number, Block.thread = divmod(number, threads)
            Copies.groups = [[]]
            if not meeting:
                body(list(operands[6:]))
            elif number % together == 0:
                Reductions.run(lambda: body(list(operands[6:])), together)
        return []

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
        part = np.transpose(memory[index], np.argsort(np.argsort(order))).reshape(spread)
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


@rule("gpu.barrier")
def barrier(op, frame):
    return lambda operands: []


@rule("tile.convert_layout", "tile.wait_matmuls")
def same(op, frame):
    return lambda operands: operands[:1]


@rule("tile.scale")
def scaled(op, frame):
    factor = 2.0 ** ir.IntegerAttr(op.operation.attributes["exponent"]).value
    return lambda operands: [operands[0] * factor]


def run_module(
    text: str, inputs: Sequence[np.ndarray], last: str = "", tile_sizes: str = "", version: str = "", **options
) -> list[np.ndarray]:
    """The results of a graph, and in `Launches` the kernels that made them; options as those of the target. `last`: the
    pass before which the module is run, if not the usual one. `version`: the function that is run, if not the graph's.
    """
    context = make_context()
    with context:
        module = parse_module(text, "test.mlir", context)
        known = ("arch", "copy_engine", "any_strides")
        machine = pipelines.machine("nvidia", **{n: options[n] for n in known if n in options})
        sizes = f" tile-sizes={tile_sizes}" if tile_sizes else ""
        first = ["raise-attention", *(["version-functions"] if version else [])]
        passes = [*first, f"fuse-attention{{machine={machine}{sizes}}}", *pipelines.nvidia(**options)]
        names = [p.partition("{")[0] for p in passes]
        last = last or (ENGINE if machine == HOPPER else GENERAL)
        run_passes(passes[: names.index(last)], module)
        Launches.kernels = []
        return evaluate(module, inputs, entry=version or None)
