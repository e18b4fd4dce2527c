"""Left operands times a power of two, in shared memory, run without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.nvidia.shared_layouts import shared_bytes
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

KERNEL = """
module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    gpu.func @scale(%stage: index) kernel attributes {{tile.threads = {threads} : i64}} {{
      %from = memref.alloc() : memref<2x{shape}x{element}, #gpu.address_space<workgroup>>
      %t = tile.view %from[%stage] : (memref<2x{shape}x{element}, #gpu.address_space<workgroup>>, index)
          -> (tensor<{shape}x{element}, "shared">)
      %s = tile.scale %t {{exponent = {exponent} : i64}} : (tensor<{shape}x{element}, "shared">)
          -> (tensor<{shape}x{element}, "shared">)
      gpu.return
    }}
  }}
}}
"""
BF16, F16 = (lambda words: (words.astype(np.uint32) << 16).view(np.float32)), (lambda words: words.view(np.float16))


def product(value_of, back):
    """mul.rn of two halves of a word each."""

    def run(a, b):
        halves = []
        for shift in (0, 16):
            x, y = (value_of((np.asarray(v) >> shift & 0xFFFF).astype(np.uint16)) for v in (a, b))
            halves.append(back(x * y).astype(np.int64))
        return halves[0] | halves[1] << 16

    return run


INSTRUCTIONS = {
    "mul.rn.bf16x2": product(BF16, lambda x: x.astype(np.float32).view(np.uint32) >> 16),  # exact: powers of two
    "mul.rn.f16x2": product(F16, lambda x: x.astype(np.float16).view(np.uint16)),
    "bar.sync": lambda count: count,
}


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize(("element", "exponent"), [("bf16", -3), ("f16", -2)])
@pytest.mark.parametrize(("rows", "columns"), [(256, 64), (192, 64), (192, 32), (256, 16), (192, 128)])
def test_every_element_of_the_stage_once(rows, columns, element, exponent, stage):
    threads = 2 * rows  # four warps have 64 rows
    with CONTEXT:
        text = KERNEL.format(threads=threads, shape=f"{rows}x{columns}", element=element, exponent=exponent)
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        size = shared_bytes(rows, columns)  # of a stage
        values = np.random.default_rng(0).standard_normal(size)
        narrow = values.astype(np.float16) if element == "f16" else values.astype(np.float32)
        words = narrow.view(np.uint16) if element == "f16" else (narrow.view(np.uint32) >> 16).astype(np.uint16)
        memory = np.zeros(1 << 18, np.uint8)
        memory[: 2 * size] = words.view(np.uint8)
        shared = Memory(memory)
        Threads(threads, [shared], instructions=INSTRUCTIONS).call(function, [stage])
    value_of = BF16 if element == "bf16" else F16
    inside = np.arange(words.size) // (size // 2) == stage
    expected = np.where(inside, value_of(words) * 2.0**exponent, value_of(words))
    np.testing.assert_array_equal(value_of(memory[: 2 * size].view(np.uint16)), expected)
    np.testing.assert_array_equal(shared.written[: 2 * size], np.repeat(inside, 2))
