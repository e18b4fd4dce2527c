"""Copies to aligned rows, run thread by thread without a GPU: which bytes they read and write."""

import math

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

MODULE = """
module attributes {{gpu.container_module}} {{
  gpu.module @f_kernels {{
  }}
  func.func @f(%a: {whole}, %at: index, %high: index) -> {copy} {{
    {slice}
    %p = tensor.pad %s low[{low}] high[{high}] {{
    ^bb0({places}):
      %zero = arith.constant {zero} : {element}
      tensor.yield %zero : {element}
    }} {{tile.copy}} : {source} to {copy}
    return %p : {copy}
  }}
}}
"""
BYTES = {"f16": 2, "i1": 1, "f32": 4}
SOURCE, TARGET = 1 << 20, 1 << 30  # where arrays stand


def dense(shape: list[int], extra: int = 0) -> list[int]:
    """Strides in elements, with `extra` ones behind each row."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size + (extra if len(strides) == 1 else 0))
    return strides


@pytest.mark.parametrize("element", BYTES)
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "slice"])
@pytest.mark.parametrize("shape", [(3, 5, 33), (2, 36), (3, 301), (2, 3, 2, 4, 20), (9, 3)], ids=str)
def test_rows_are_copied_and_nothing_else_is_read(shape, cut, is_open, element):
    width, rank = BYTES[element], len(shape)
    per = 16 // width
    last = -(-shape[-1] // per) * per
    if last == shape[-1]:
        pytest.skip("aligned rows")
    whole = list(shape)
    if cut:  # a slice, from the second entry on
        whole[0] += 2
    static = [str(n) for n in shape]
    if is_open:
        static[0] = static[-1] = "?"
    of_whole = [*(["?"] if is_open else [str(whole[0])]), *static[1:]]
    zeros, ones = ["0"] * rank, ["1"] * rank
    dims = "\n".join(f"%c{d} = arith.constant {d} : index" for d in (0, rank - 1))
    source = f"tensor<{'x'.join(static)}x{element}>"
    whole_type = f"tensor<{'x'.join(of_whole)}x{element}>"
    sizes = [n if n != "?" else f"%n{d}" for d, n in enumerate(static)]
    made = dims + "".join(f"\n%n{d} = tensor.dim %a, %c{d} : {whole_type}" for d in (0, rank - 1))
    if is_open and cut:
        made = made.replace("%n0 = tensor", "%w0 = tensor") + "\n%two = arith.constant 2 : index"
        made += "\n%n0 = arith.subi %w0, %two : index"
    starts = ", ".join(["%at" if cut else "0", *zeros[1:]])
    text = MODULE.format(
        whole=whole_type,
        source=source,
        copy=f"tensor<{'x'.join([*static[:-1], '?' if is_open else str(last)])}x{element}>",
        slice=f"{made}\n%s = tensor.extract_slice %a[{starts}] [{', '.join(sizes)}] [{', '.join(ones)}] "
        f": {whole_type} to {source}",
        low=", ".join(zeros),
        high=", ".join([*zeros[1:], "%high" if is_open else str(last - shape[-1])]),
        places=", ".join(f"%i{d}: index" for d in range(rank)),
        zero={"f16": "0.0", "f32": "0.0", "i1": "false"}[element],
        element=element,
    )
    text = text.replace("arith.constant false : i1", "arith.constant false")

    extra = 16 // width if shape[-1] * width % 16 else 0  # views of longer rows, aligned as these are
    strides, to = dense(whole, extra), dense([*shape[:-1], last])
    start = 1 if cut else 0
    rng = np.random.default_rng(0)
    elements = 1 + sum(stride * (size - 1) for stride, size in zip(strides, whole, strict=True))
    memory = rng.integers(1, 255, elements * width, dtype=np.uint8)
    expected = np.zeros((*shape[:-1], last * width), np.uint8)
    for at in np.ndindex(*shape[:-1]):
        first = width * sum(s * i for s, i in zip(strides, (at[0] + start, *at[1:]), strict=False))
        expected[at][: shape[-1] * width] = memory[first : first + shape[-1] * width]
    target = np.full(expected.size, 0xAA, np.uint8)
    base = SOURCE + (width if is_open else math.gcd(16, shape[-1] * width))
    copied = Memory(target, TARGET)

    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["outline-pads", "canonicalize", "cse", "tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        open_dims = [0, rank - 1] if is_open else []
        of_source = [base, *((whole if d == 0 else shape)[d] for d in open_dims), *strides[:-1]]
        of_target = [TARGET, *([shape[0], last] if is_open else []), *to[:-1]]
        scalars = [*(shape[d] for d in open_dims), *([start] if cut else [])]
        lanes = 32 if is_open else last * width // 16
        threads = math.prod(shape[:-1]) * lanes
        whole_blocks = Threads(-(-threads // 256) * 256, [Memory(memory, base), copied], in_block=256)
        whole_blocks.call(function, [*of_source, *of_target, *scalars])
    assert np.array_equal(target, expected.reshape(-1)) and np.all(copied.written == 1)
