"""Tiles of rows that are not aligned: copied and read thread by thread, without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

KERNEL = """
module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    gpu.func @skewed(%m: {memory}, %out: memref<{shape}xf32, strided<[{columns}, 1]>>, %h: index, %i: index,
                     %j: index, %rows: index, %columns: index)
        kernel attributes {{tile.producers = 1 : i64}} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %warps = arith.constant {warps} : index
      %height = arith.constant {height} : index
      %width = arith.constant {columns} : index
      %buffer = memref.alloc() : {buffer}
      %ready = memref.alloc() : memref<2xi64, #gpu.address_space<workgroup>>
      %w = tile.warp : index
      %copies = arith.cmpi ugt, %w, %warps : index
      scf.if %copies {{
        tile.copy_rows (%m, %buffer, %ready, %c1, %h, %i, %j, %rows, %columns) {{dims = [1, 2]}}
          : ({memory}, {buffer}, memref<2xi64, #gpu.address_space<workgroup>>, index, index, index, index, index, index)
            -> ()
      }}
      %computes = arith.cmpi ult, %w, %warps : index
      scf.if %computes {{
        %t = tile.view %buffer[%c1] : ({buffer}, index) -> (tensor<{shape}x{element}, "skewed">)
        %s = tile.row_shifts (%m, %h, %i, {shifting}) {{dim = 1 : i64, aligned = {aligned} : i64}}
          : ({memory}, index, index, index) -> (tensor<{height}xi32, "row">)
        %f = tile.convert_layout %t at %s
          : (tensor<{shape}x{element}, "skewed">, tensor<{height}xi32, "row">)
            -> (tensor<{shape}x{element}, "fragment">)
        {use}
      }}
      gpu.return
    }}
  }}
}}
"""
USE = """%e = tensor.empty() : tensor<{shape}xf32, "fragment">
        %d = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
            ins({inputs} : {types}) outs(%e : tensor<{shape}xf32, "fragment">) {{
        ^bb0({arguments}, %y: f32):
          {widening}
          linalg.yield %z : f32
        }} -> tensor<{shape}xf32, "fragment">
        tile.store (%d, %out, %c0, %c0, %height, %width) {{dims = [0, 1]}}
          : (tensor<{shape}xf32, "fragment">, {out}, index, index, index, index)
          -> ()"""
IDENTITY = "affine_map<(i, j) -> (i, j)>"
WIDENING = {
    "f16": "%z = arith.extf %x : f16 to f32",
    "bf16": "%z = arith.extf %x : bf16 to f32",
    "f32": "%z = arith.addf %x, %x : f32",
    "i8": "%z = arith.sitofp %x : i8 to f32",
}


def use_of(element, shape, columns, at_once):
    """Stores the elements as f32: what takes no other tile takes them as they come."""
    count = 1 if at_once else 2
    return USE.format(
        shape=shape,
        out=f"memref<{shape}xf32, strided<[{columns}, 1]>>",
        maps=", ".join([IDENTITY] * (count + 1)),
        inputs=", ".join(["%f"] * count),
        types=", ".join([f'tensor<{shape}x{element}, "fragment">'] * count),
        arguments=", ".join(f"%x{i or ''}: {element}" for i in range(count)),
        widening=WIDENING[element],
    )


BYTES = {"f16": 2, "bf16": 2, "f32": 4, "i8": 1}
BITS = {  # of small integers
    "f16": lambda x: x.astype("<f2"),
    "bf16": lambda x: (x.astype("<f4").view("<u4") >> 16).astype("<u2"),
    "f32": lambda x: x.astype("<f4"),
    "i8": lambda x: x.astype("i1"),
}
TURNS = {"f16": 1, "bf16": 1, "f32": 2, "i8": 2}
SOURCE, TARGET = 1 << 20, 1 << 30  # where arrays stand; shared memory begins at 0


class Banks(Threads):
    """Asserts how many words a warp reads of one bank of shared memory at once."""

    turns = 1

    def read(self, addresses, on, width, count, aligned=0):
        if on.any() and addresses[on][0] < SOURCE:
            for warp in np.unique(self.warp[on]):
                words = np.unique(addresses[on & (self.warp == warp)] // 4)
                assert np.bincount(words % 32).max() <= self.turns * count
        return super().read(addresses, on, width, count, aligned)


def run(element, height, columns, size, at, rows, valid, stride, start, aligned, at_once=False):
    """A tile of a memory of heads × rows × `size`, whose rows are `stride` elements apart and whose address is `start`
    bytes behind a multiple of 16; its place, and how much of it is valid. Columns that begin at a multiple of 16 bytes
    do not change by how much rows are shifted."""
    width, (head, first, column) = BYTES[element], at
    shape = f"{height}x{columns}"
    names = {"element": element, "shape": shape, "columns": columns, "height": height}
    text = KERNEL.format(
        **names,
        memory=f"memref<?x?x{size or '?'}x{element}, strided<[?, ?, 1]>>",
        buffer=f"memref<2x{shape}x{element}, #gpu.address_space<workgroup>>",
        shifting="%j" if column * width % 16 else "%c0",
        warps=height // 16,
        aligned=aligned,
        use=use_of(element, shape, columns, at_once),
    )
    size = size or column + valid
    rng = np.random.default_rng(0)
    elements = (head + 1) * (first + rows) * stride - stride + size
    numbers = rng.integers(-100, 100, elements)
    before = np.zeros(start, np.uint8)  # of the same 16 bytes as the first element
    source = Memory(np.concatenate([before, BITS[element](numbers).view(np.uint8)]), SOURCE)
    target = Memory(np.full(4 * height * columns, 0xAA, np.uint8), TARGET)
    shared = Memory(np.full(1 << 18, 0x7F, np.uint8))
    per_head = (first + rows) * stride
    expected = np.zeros((height, columns), numbers.dtype)
    for row in range(min(rows, height)):
        begin = head * per_head + (first + row) * stride + column
        expected[row, : min(valid, columns)] = numbers[begin : begin + valid][:columns]
    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        sizes = [head + 1, first + rows, *([] if f"x{size}x" in text else [size])]
        arguments = [SOURCE + start, *sizes, per_head, stride, TARGET, columns, head, first, column]
        threads = Banks(height * 2 + 128, [shared, source, target], empty_anywhere=True)
        threads.turns = TURNS[element]
        threads.call(function, [*arguments, rows, valid])
    found = target.bytes.view("<f4").reshape(height, columns)
    np.testing.assert_array_equal(found, expected * (2 if element == "f32" else 1))
    assert np.all(shared.written <= 1), "each byte is written once"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("at_once", [False, True], ids=["kept", "at once"])
@pytest.mark.parametrize(("height", "columns"), [(64, 64), (128, 128), (192, 64), (64, 208)])
@pytest.mark.parametrize("element", BYTES)
def test_elements_come_to_their_threads(element, height, columns, at_once, from_column=0):
    width = BYTES[element]
    per = 16 // width
    for size, first, cut, start in ((2 * columns + 5, 3, 0, 0), (2 * columns + 6, 0, 1, width), (columns + 3, 2, 9, 0)):
        column = (size - columns - 1) // per * per + from_column
        at, rows, valid = (1, first, column), height - cut, size - column
        run(element, height, columns, size, at, rows, valid, size, start, width, at_once)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("from_column", [1, 2, 5])
@pytest.mark.parametrize("element", BYTES)
def test_columns_begin_anywhere(element, from_column):
    test_elements_come_to_their_threads(element, 64, 64, False, from_column)


@pytest.mark.parametrize("valid", [1, 7, 32, 63])
@pytest.mark.parametrize("element", BYTES)
def test_what_is_not_valid_is_not_read(element, valid):
    """Rows that stand far apart; the array ends with its last element."""
    run(element, 64, 64, 64 + valid, (0, 5, 64), 40, valid, 131, BYTES[element], BYTES[element])


@pytest.mark.parametrize("at_once", [False, True], ids=["kept", "at once"])
@pytest.mark.parametrize(
    ("element", "size", "aligned"), [("f16", 66, 4), ("bf16", 66, 4), ("f16", 68, 8), ("f32", 66, 8), ("i8", 66, 2)]
)
def test_neighbours_come_together_from_rows_that_allow_it(element, size, aligned, at_once):
    run(element, 64, 64, size, (1, 3, 0), 64, size, size, aligned, aligned, at_once)


def test_rows_of_an_open_size():
    run("f16", 64, 64, 0, (2, 4, 64), 60, 33, 97, 2, 2)
