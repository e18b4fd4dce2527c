"""Kernels of producers, run thread by thread without a GPU: what they compute, and where they write it."""

import math

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

ROWS = 52
SOURCE, TARGET = 1 << 20, 1 << 30  # where arrays stand
# Elements of q, the two parts of whose rows change places, combined with a row of constants and with q itself.
MODULE = """
#whole = affine_map<(i, j) -> (i, j)>
func.func @f(%q: {whole}) -> {whole} {{
  %t = arith.constant dense<[{constants}]> : tensor<{columns}x{element}>
  %a = tensor.extract_slice %q[0, 0] [{rows}, {cut}] [1, 1] : {whole} to tensor<{rows}x{cut}x{element}>
  %b = tensor.extract_slice %q[0, {cut}] [{rows}, {rest}] [1, 1] : {whole} to tensor<{rows}x{rest}x{element}>
  %h = tensor.concat dim(1) %b, %a : (tensor<{rows}x{rest}x{element}>, tensor<{rows}x{cut}x{element}>) -> {whole}
  %empty = tensor.empty() : {whole}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (j)>, #whole, #whole, #whole],
      iterator_types = ["parallel", "parallel"]}} ins(%t, %h, %q : tensor<{columns}x{element}>, {whole}, {whole})
      outs(%empty : {whole}) {{
  ^bb0(%c: {element}, %x: {element}, %y: {element}, %old: {element}):
    %u = {product} %c, %x : {element}
    %v = {sum} %u, %y : {element}
    linalg.yield %v : {element}
  }} -> {whole}
  %o = scf.forall (%i) = (0) to ({rows}) step (4) shared_outs(%to = %empty) -> ({whole}) {{
    %x = tensor.extract_slice %r[%i, 0] [4, {columns}] [1, 1] : {whole} to tensor<4x{columns}x{element}>
    scf.forall.in_parallel {{
      tensor.parallel_insert_slice %x into %to[%i, 0] [4, {columns}] [1, 1] : tensor<4x{columns}x{element}> into {whole}
    }}
  }}
  return %o : {whole}
}}
"""
DTYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i16": np.int16, "i8": np.int8, "i1": np.bool_}


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize(("columns", "cut"), [(32, 16), (32, 20), (48, 2), (33, 7)])
def test_every_element_is_computed_and_written_once(columns, cut, element):
    dtype, is_float = DTYPES[element], element[0] == "f"
    rng = np.random.default_rng(0)
    high = 2 if element == "i1" else 100
    stride = columns + 16  # a part of longer rows
    whole = rng.integers(-high if is_float else 0, high, (ROWS, stride)).astype(dtype)
    constants = rng.integers(0, 2, columns).astype(dtype)
    words = {"f": [f"{x:.1f}" for x in constants], "i": [str(int(x)) for x in constants]}[element[0]]
    text = MODULE.format(
        whole=f"tensor<{ROWS}x{columns}x{element}>",
        rows=ROWS,
        columns=columns,
        cut=cut,
        rest=columns - cut,
        element=element,
        constants=", ".join(["true" if w == "1" else "false" for w in words] if element == "i1" else words),
        product="arith.mulf" if is_float else "arith.andi",
        sum="arith.addf" if is_float else "arith.xori",
    )
    q = whole[:, :columns]
    moved = np.concatenate([q[:, cut:], q[:, :cut]], 1)
    expected = constants * moved + q if is_float else constants & moved ^ q
    target = np.zeros((ROWS, columns), dtype)
    written = Memory(target.view(np.uint8).reshape(-1), TARGET)
    table = Memory(constants.view(np.uint8).reshape(-1), 0)  # the address of a constant
    with CONTEXT, np.errstate(all="ignore"):
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["outline-producers{multiprocessors=0}", "canonicalize", "cse", "tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        pieces = 16 // max(2, target.itemsize)
        threads = math.ceil(ROWS * columns / math.gcd(pieces, columns, cut, columns - cut) / 256) * 256
        memories = [Memory(whole.view(np.uint8).reshape(-1), SOURCE), written, table]
        Threads(threads, memories, in_block=256).call(function, [SOURCE, stride, TARGET, columns])
    np.testing.assert_array_equal(target, expected)
    assert np.all(written.written == 1)
