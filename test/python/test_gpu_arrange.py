"""Operands of 8 bits put in order, run warp by warp without a GPU: each op of the code is evaluated for all threads at
once, with arrays of a number per thread."""

import re

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.nvidia.contraction import pack_pairs
from attn_opt.transforms.nvidia.synchronisation import ARRANGERS
from attn_opt.transforms.nvidia.thread import Registers, constant, f32, places
from attn_opt.transforms.rewriting import ops_in

KERNEL = """
module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    gpu.func @arrange() kernel attributes {{tile.threads = 256 : i64}} {{
      %zero = arith.constant 0 : index
      %from = memref.alloc() : memref<1x{shape}xf8E4M3FN, #gpu.address_space<workgroup>>
      %to = memref.alloc() : memref<1x{shape}xf8E4M3FN, #gpu.address_space<workgroup>>
      %t = tile.view %from[%zero] : (memref<1x{shape}xf8E4M3FN, #gpu.address_space<workgroup>>, index)
          -> (tensor<{shape}xf8E4M3FN, "shared">)
      tile.arrange %t, %to[%zero] {{inner = {inner} : i64}}
          : (tensor<{shape}xf8E4M3FN, "shared">, memref<1x{shape}xf8E4M3FN, #gpu.address_space<workgroup>>, index) -> ()
      gpu.return
    }}
  }}
}}
"""
INTEGERS = {
    "arith.addi": np.add,
    "arith.muli": np.multiply,
    "arith.divui": np.floor_divide,
    "arith.remui": np.remainder,
    "arith.andi": np.bitwise_and,
    "arith.xori": np.bitwise_xor,
}
ORDER = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
THREADS = 256


class Warps:
    """All threads of a block, and its shared memory."""

    def __init__(self, memory: np.ndarray):
        self.numbers, self.memory = np.arange(THREADS), memory
        self.values: dict[ir.Value, np.ndarray] = {}
        self.written = np.zeros(memory.size, int)

    def run(self, ops, active: np.ndarray) -> None:
        for op in ops:
            op = op.operation
            if op.name in ("llvm.return", "scf.yield"):
                continue
            inputs = [self.values[v] for v in op.operands]
            if op.name == "scf.if":
                self.run(op.regions[0].blocks[0].operations, active & inputs[0].astype(bool))
            elif op.name == "llvm.extractvalue":
                self.values[op.results[0]] = inputs[0][ir.DenseI64ArrayAttr(op.attributes["position"])[0]]
            elif op.name == "llvm.inline_asm":
                result = self.assembly(ir.StringAttr(op.attributes["asm_string"]).value, inputs, active)
                if op.results:
                    self.values[op.results[0]] = result
            else:
                self.values[op.results[0]] = self.plain(op, inputs)

    def plain(self, op: ir.Operation, inputs: list[np.ndarray]) -> np.ndarray:
        if op.name == "arith.constant":
            return np.full(THREADS, ir.IntegerAttr(op.attributes["value"]).value)
        if op.name in INTEGERS:
            return INTEGERS[op.name](*inputs)
        if op.name == "arith.cmpi":
            assert ir.IntegerAttr(op.attributes["predicate"]).value == 2
            return inputs[0] < inputs[1]
        if op.name == "nvvm.shfl.sync":
            return inputs[1][self.numbers // 32 * 32 + inputs[2]]
        if op.name == "llvm.ptrtoint" or op.name == "llvm.mlir.addressof":
            return np.zeros(THREADS, int)
        assert op.name == "nvvm.read.ptx.sreg.tid.x", op.name
        return self.numbers

    def words(self, addresses: np.ndarray) -> np.ndarray:
        return sum(self.memory[addresses + i].astype(np.int64) << 8 * i for i in range(4))

    def store(self, addresses: np.ndarray, words: np.ndarray, active: np.ndarray) -> None:
        for i in range(4):
            self.memory[(addresses + i)[active]] = (words >> 8 * i & 0xFF)[active]
            np.add.at(self.written, (addresses + i)[active], 1)

    def matrices(self, addresses: np.ndarray, number: int) -> np.ndarray:
        """Of every thread the address of row lane/4, word lane mod 4 of a matrix, whose rows lanes 8·number… have."""
        lane = self.numbers % 32
        return addresses[self.numbers - lane + 8 * number + lane // 4] + 4 * (lane % 4)

    def assembly(self, text: str, inputs: list[np.ndarray], active: np.ndarray):
        lane = self.numbers % 32
        if text.startswith("ldmatrix"):
            assert ".x4.trans" in text and np.all(inputs[0][active] % 16 == 0)
            found = []
            for number in range(4):
                rows = [inputs[0][self.numbers - lane + 8 * number + 2 * (lane % 4) + i] for i in (0, 1)]
                halves = [self.words(np.where(active, r + 2 * (lane // 4), 0)) & 0xFFFF for r in rows]
                found.append(halves[0] | halves[1] << 16)
            return found
        if text.startswith("stmatrix"):
            for number, words in enumerate(inputs[1:]):
                self.store(self.matrices(inputs[0], number), words, active)
            return None
        if text.startswith("prmt"):
            selector = int(re.search(r"0x(\w+)", text)[1], 16)
            eight = [inputs[i // 4] >> 8 * (i % 4) & 0xFF for i in range(8)]
            return sum(eight[selector >> 4 * i & 7] << 8 * i for i in range(4))
        if text.startswith("ld.shared.v4"):
            return [self.words(np.where(active, inputs[0] + 4 * i, 0)) for i in range(4)]
        if text.startswith("st.shared.v4"):
            for i, words in enumerate(inputs[1:]):
                self.store(inputs[0] + 4 * i, words, active)
            return None
        assert text.startswith("fence.proxy.async"), text
        return None


def address(outer, inner, outer_size, inner_size):
    """Of an element in shared memory, as the layout "shared" says for 8 bits."""
    line = next(n for n in (32, 64, 128) if n >= min(inner_size, 128))
    piece = inner % line // 16 ^ outer // (128 // line) % (line // 16)
    return inner // line * outer_size * line + outer * line + piece * 16 + inner % 16


@pytest.mark.parametrize("inner", [0, 1])
@pytest.mark.parametrize(("keys", "columns"), [(128, 128), (128, 64), (64, 32), (32, 256), (160, 96), (192, 64)])
def test_every_element_comes_to_its_place_once(keys, columns, inner):
    """`inner` 0: values with keys as rows are transposed; 1: columns as rows, keys change places alone."""
    shape = f"{keys}x{columns}" if inner == 0 else f"{columns}x{keys}"
    with make_context() as context:
        module = parse_module(KERNEL.format(shape=shape, inner=inner), "test.mlir", context)
        # The order in which the source stands in memory is otherwise that of what is copied there.
        pass_manager.run(["tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        data = np.random.default_rng(0).integers(0, 256, (keys, columns))
        memory = np.full(1 << 17, 0xAA)
        k, c = np.indices(data.shape)
        if inner == 0:
            memory[address(k, c, keys, columns)] = data
            size = keys * -(-columns // 128) * 128 if columns > 64 else keys * columns
        else:
            memory[address(c, k, columns, keys)] = data
            size = columns * -(-keys // 128) * 128 if keys > 64 else columns * keys
        start = -(-size // 1024) * 1024
        warps = Warps(memory)
        warps.run(function.regions[0].blocks[0].operations, warps.numbers >= THREADS - 32 * ARRANGERS)
    paired = k // 16 * 16 + np.argsort(ORDER)[k % 16]
    at = start + address(c, paired, columns, keys)
    np.testing.assert_array_equal(memory[at], data)
    assert np.all(warps.written[at] == 1)
    assert inner == 1 or warps.written.sum() == data.size


@pytest.mark.parametrize("some_are_equal", [False, True])
def test_pairs_of_a_fragment_have_the_order_of_keys(some_are_equal):
    """Byte i of a thread's word is k 4·(lane mod 4) + i of 16: of the words two rows, then 16 k on."""
    columns = 64
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            values = [constant(f32(), e) for e in range(columns // 2)]
            packed = pack_pairs(Registers("fragment", (64, columns), values), "f8E4M3FN", some_are_equal)
        assert packed.layout == "paired_a" and len(packed.values) == columns // 8
        at = places("fragment", len(values))
        for number, word in enumerate(packed.values):
            elements = [int(ir.FloatAttr(v.owner.attributes["value"]).value) for v in word.owner.operands]
            assert {at[e][0] for e in elements} == {number % 2}
            for quarter in range(4):
                found = [8 * (at[e][1] // 2) + 2 * quarter + at[e][1] % 2 for e in elements]
                assert found == [16 * (number // 2) + ORDER[4 * quarter + i] for i in range(4)]
