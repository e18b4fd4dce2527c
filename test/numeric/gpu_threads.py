"""What the threads of a kernel do that has no tiles, for the reference evaluator: all of them at once, so that a number
is an array with an element for each thread, and a piece of 16 bytes has one more dimension. In a branch or a loop that
only some take, what the others have is not looked at. None may read what another one writes, but behind a barrier what
those of its block do."""

import functools

import numpy as np
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.reference import arith, arrays, scf
from attn_opt.dialects.reference.interface import rule

WARP = 32


class Threads:
    """Of which block, and thread of it, the ops are being evaluated, of how many blocks: in kernels without tiles of
    all that are `active` in the branch."""

    block = 0
    thread = 0
    blocks = 0
    of_block = WARP
    active = None
    written: dict = {}  # noqa: RUF012 — of arrays, by their number: of each element the thread that wrote it, or -1
    met: dict = {}  # noqa: RUF012 — the same, of what was written before a barrier

    @classmethod
    def run(cls, body, arguments, blocks, of_block):
        cls.block, cls.thread = (x.ravel() for x in np.indices((blocks, of_block)))
        cls.of_block, cls.active = of_block, np.full(blocks * of_block, True)
        cls.written, cls.met = {}, {}
        try:
            body(list(arguments))
        finally:
            cls.block, cls.thread, cls.active = 0, 0, None

    @classmethod
    def barrier(cls):
        assert cls.active is None or cls.active.all(), "some threads pass by a barrier"
        for number, writers in cls.written.items():
            of_before = cls.met.setdefault(number, np.full_like(writers, -1))
            of_before[writers >= 0] = writers[writers >= 0]
        cls.written = {}

    @classmethod
    def note(cls, memory, where):
        """That elements are written."""
        writers = cls.written.setdefault(id(memory), np.full(memory.shape, -1))
        write(writers, where, np.arange(len(cls.active)))

    @classmethod
    def check(cls, memory, where):
        """That elements which are read were there before, or are of a thread of the block, behind a barrier."""
        own = np.arange(len(cls.active))
        for noted, of in ((cls.written, 1), (cls.met, cls.of_block)):
            if id(memory) in noted:
                by = np.broadcast_to(noted[id(memory)][where], own.shape)
                assert not (cls.active & (by >= 0) & (by // of != own // of)).any(), "read while others write it"

    @classmethod
    def only(cls, condition, body):
        """What a body gives for the threads to which a condition applies; None where it applies to none."""
        before = cls.active
        cls.active = before & condition
        try:
            return body() if cls.active.any() else None
        finally:
            cls.active = before


def chosen(condition, results, yes, no):
    """Of each thread one of two numbers, or pieces."""
    pieces = (isinstance(result.type, ir.VectorType) for result in results)
    return [np.where(condition[:, None] if p else condition, a, b) for p, a, b in zip(pieces, yes, no, strict=True)]


@rule("gpu.block_id")
def block_id(op, frame):
    return lambda operands: [np.int64(Threads.block)]


@rule("gpu.thread_id")
def thread_id(op, frame):
    return lambda operands: [np.int64(Threads.thread)]


@rule("gpu.grid_dim")
def grid_dim(op, frame):
    return lambda operands: [np.int64(Threads.blocks)]


@rule("gpu.subgroup_reduce", "gpu.all_reduce")
def reduce_over_threads(op, frame):
    kinds = {"add": np.add, "mul": np.multiply, "maximumf": np.maximum, "maxnumf": np.fmax}
    kinds |= {"minimumf": np.minimum, "minnumf": np.fmin, "maxsi": np.maximum, "minsi": np.minimum}
    combine = kinds[str(op.operation.attributes["op"]).split()[-1].rstrip(">")]
    attributes = op.operation.attributes
    lanes = attributes["cluster_size"].value if "cluster_size" in attributes else None
    apart = next((name for name in ("cluster_stride", "tile.beside") if name in attributes), None)
    beside = attributes[apart].value if apart else 1

    def run(operands):
        width = lanes * beside if lanes else Threads.of_block
        active = Threads.active.reshape(-1, width)
        assert (active.all(1) == active.any(1)).all(), "some threads pass by a reduction"
        parts = np.broadcast_to(operands[0], Threads.active.shape).reshape(-1, width // beside, beside)
        return [np.tile(combine.reduce(parts, axis=1), width // beside).ravel()]

    return run


@rule("gpu.shuffle")
def shuffle_up(op, frame):
    assert "up" in str(op.operation.attributes["mode"])

    def run(operands):
        value, far, width = operands
        active = Threads.active.reshape(-1, WARP)
        assert width == WARP and (active.all(1) == active.any(1)).all(), "some threads pass by a shuffle"
        parts = np.broadcast_to(value, Threads.active.shape).reshape(-1, WARP)
        lanes = np.arange(WARP)
        found = parts[:, np.where(lanes < far, lanes, lanes - far)]
        return [found.ravel(), np.tile(lanes >= far, len(found))]

    return run


def when_taken(region, frame):
    """A branch that is planned where it is first taken: a warp takes those of its role alone."""
    body = functools.cache(lambda: frame.region(region))
    return lambda arguments: body()(arguments)


@rule("scf.if")
def if_(op, frame):
    branches = [when_taken(r, frame) if r.blocks else lambda arguments: [] for r in op.operation.regions]

    def run(operands):
        (condition,) = operands
        if Threads.active is None or np.ndim(condition) == 0:
            return scf.chosen(branches, operands)
        sides = [
            Threads.only(c, lambda branch=branch: branch([]))
            for c, branch in zip((condition, ~condition), branches, strict=True)
        ]
        if None in sides:
            return sides[1] if sides[0] is None else sides[0]
        return chosen(condition, op.operation.results, *sides)

    return run


@rule("scf.for")
def for_(op, frame):
    body = frame.region(op.operation.regions[0])

    def run(operands):
        lower, upper, step, *carried = operands
        if all(np.ndim(x) == 0 for x in (lower, upper, step)):
            return scf.iterated(body, operands)
        i = np.broadcast_to(lower, Threads.active.shape)
        while (new := Threads.only(i < upper, lambda i=i, carried=carried: body([i, *carried]))) is not None:
            carried = chosen(i < upper, op.operation.results, new, carried)
            i = i + step
        return carried

    return run


@rule("scf.while")
def while_(op, frame):
    """Of threads that each go on as long as they have to; of others what it carries stays."""
    of_all = scf.while_(op, frame)
    condition, body = (frame.region(region) for region in op.operation.regions)

    def run(carried):
        if Threads.active is None:
            return of_all(carried)
        going, found = Threads.active, None
        while True:
            proceed, *passed = Threads.only(going, lambda carried=carried: condition(carried))
            found = passed if found is None else chosen(going, op.operation.results, passed, found)
            going = going & proceed
            carried = Threads.only(going, lambda found=found: body([*found]))
            if carried is None:
                return found

    return run


@rule("arith.select")
def select(op, frame):
    of_one = arith.select(op, frame)

    def run(operands):
        if Threads.active is None or np.ndim(operands[0]) == 0:
            return of_one(operands)
        condition, yes, no = operands
        return chosen(condition, op.operation.results, [yes], [no])

    return run


# Memory.


def places(memory, at, count=None):
    """Where in a memory the elements are, or pieces of so many of them, of the threads that are active: an error where
    they leave it; and 0 of others."""
    if Threads.active is None and any(map(np.ndim, at)):  # of a tile's elements: those of padding read the nearest one
        return tuple(np.clip(i, 0, n - 1) for i, n in zip(at, memory.shape, strict=True))
    active = True if Threads.active is None else Threads.active
    last = [*at[:-1], at[-1] + count - 1] if count else at
    for d, (i, j, n) in enumerate(zip(at, last, memory.shape, strict=True)):
        leaving = np.broadcast_to(((i < 0) | (j >= n)) & active, np.shape(active))
        assert not leaving.any(), f"{np.broadcast_to(i, np.shape(active))[leaving]} leaves {memory.shape} along {d}"
    if Threads.active is None:
        found = list(at)
    else:
        found = [np.where(active, i, 0) for i in at]
    if count:
        assert np.all(found[-1] % count == 0), f"{count} elements from {at} on are not aligned"
        found = [np.asarray(i)[..., None] for i in found]
        found[-1] = found[-1] + np.arange(count)
    return tuple(found)


def write(memory, where, values):
    """Of the threads that are active."""
    if Threads.active is None:
        memory[where] = values
        return
    shape = np.broadcast_shapes(Threads.active.shape, *(np.shape(i)[:1] for i in where)) + np.shape(where[-1:])[2:]
    written = np.broadcast_to(values, shape)[Threads.active]
    memory[tuple(np.broadcast_to(i, shape)[Threads.active] for i in where)] = written if where else written[-1]


@rule("memref.load")
def load_element(op, frame):
    def run(operands):
        memory, *at = operands
        where = places(memory, at)
        if Threads.active is not None:
            Threads.check(memory, where)
        return [memory[where]]

    return run


@rule("memref.store")
def store_element(op, frame):
    def run(operands):
        value, memory, *at = operands
        where = places(memory, at)
        write(memory, where, value)
        if Threads.active is not None:
            Threads.note(memory, where)
        return []

    return run


@rule("gpu.barrier")
def barrier(op, frame):
    def run(operands):
        Threads.barrier()
        return []

    return run


@rule("vector.load")
def load_piece(op, frame):
    (count,) = op.operation.results[0].type.shape
    return lambda operands: [operands[0][places(operands[0], operands[1:], count)]]


@rule("vector.store")
def store_piece(op, frame):
    (count,) = op.operation.operands[0].type.shape

    def run(operands):
        piece, memory, *at = operands
        write(memory, places(memory, at, count), piece)
        return []

    return run


@rule("tile.copy_piece")
def copy_piece(op, frame):
    """16 bytes of a row: what is not valid becomes 0, and is not read."""
    count = 128 // max(8, op.operation.operands[0].type.element_type.width)  # a flag is a byte

    def run(operands):
        source, target, *at, left = operands
        at, to = at[: source.ndim], at[source.ndim :]
        assert np.all((left > 0) | ~Threads.active), "no valid elements"
        valid = np.arange(count) < np.reshape(left, (-1, 1))
        last = at[-1] + np.minimum(left, count) - 1
        places(source, [*at[:-1], last])
        *outer, first = (np.reshape(np.where(Threads.active, i, 0), (-1, 1)) for i in at)
        found = source[(*outer, np.where(valid, first + np.arange(count), first))]
        write(target, places(target, to, count), np.where(valid, found, 0))
        return []

    return run


@rule("vector.extract")
def element_of_piece(op, frame):
    (number,) = ir.DenseI64ArrayAttr(op.operation.attributes["static_position"])
    return lambda operands: [operands[0][..., number]]


@rule("vector.from_elements")
def piece_of_elements(op, frame):
    kind = arrays.value_dtype(op.operation.results[0].type)
    return lambda operands: [np.stack(np.broadcast_arrays(*operands), -1).astype(kind)]


@rule("vector.broadcast")
def piece_of_equals(op, frame):
    (count,) = op.operation.results[0].type.shape
    return lambda operands: [np.repeat(np.asarray(operands[0])[..., None], count, -1)]
