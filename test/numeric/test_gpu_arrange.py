"""Operands of 8 bits put in order, run without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.nvidia.architecture import ARRANGERS
from attn_opt.transforms.nvidia.code.contraction import pack_pairs
from attn_opt.transforms.nvidia.code.thread import Registers, constant, f32, places
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

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
ORDER = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
THREADS = 256


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
    with CONTEXT:
        module = parse_module(KERNEL.format(shape=shape, inner=inner), "test.mlir", CONTEXT)
        # The order in which the source stands in memory is otherwise that of what is copied there.
        pass_manager.run(["tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        data = np.random.default_rng(0).integers(0, 256, (keys, columns), np.uint8)
        memory = np.full(1 << 17, 0xAA, np.uint8)
        k, c = np.indices(data.shape)
        if inner == 0:
            memory[address(k, c, keys, columns)] = data
            size = keys * -(-columns // 128) * 128 if columns > 64 else keys * columns
        else:
            memory[address(c, k, columns, keys)] = data
            size = columns * -(-keys // 128) * 128 if keys > 64 else columns * keys
        start = -(-size // 1024) * 1024
        shared = Memory(memory)
        Threads(THREADS, [shared]).call(function, [], np.arange(THREADS) >= THREADS - 32 * ARRANGERS)
    paired = k // 16 * 16 + np.argsort(ORDER)[k % 16]
    at = start + address(c, paired, columns, keys)
    np.testing.assert_array_equal(memory[at], data)
    assert np.all(shared.written[at] == 1)
    assert inner == 1 or shared.written.sum() == data.size


@pytest.mark.parametrize("some_are_equal", [False, True])
def test_pairs_of_a_fragment_have_the_order_of_keys(some_are_equal):
    """Byte i of a thread's word is k 4·(lane mod 4) + i of 16: of the words two rows, then 16 k on."""
    columns = 64
    with CONTEXT, ir.Location.unknown():
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
