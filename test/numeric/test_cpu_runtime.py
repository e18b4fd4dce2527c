"""What a compiled kernel takes and gives back: types, shapes, ownership, errors."""

import gc
import re
import resource
import threading

import graphs
import ml_dtypes
import numpy as np
import pytest
from attn_opt.dialects.diagnostic import DiagnosedError
from harness import kernel


def identity(kind: str) -> str:
    return f"func.func @main(%x: {kind}) -> {kind} {{ return %x : {kind} }}"


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("f16", np.float16),
        ("bf16", ml_dtypes.bfloat16),
        ("f32", np.float32),
        ("f64", np.float64),
        ("i1", np.bool_),
        ("i8", np.int8),
        ("i16", np.int16),
        ("i32", np.int32),
        ("i64", np.int64),
        ("index", np.int64),
    ],
)
def test_element_types(element, dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    found = kernel(identity(f"tensor<2x?x{element}>"))(x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x)
    scalar = kernel(identity(element))(x[0, 1])
    assert scalar == x[0, 1] and scalar.dtype == x.dtype


def test_results_never_share_memory_with_arguments():
    """An argument that is returned is copied, and an argument that is computed into is not changed."""
    run = kernel("""
func.func @main(%x: tensor<4xf32>, %c: f32) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %f = linalg.fill ins(%c : f32) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %x, %f, %f : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}""")
    x = np.arange(4, dtype=np.float32)
    same, filled, again = run(x, 7.0)
    np.testing.assert_array_equal(x, [0, 1, 2, 3])
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(filled, [7] * 4)
    same[:] = -1
    np.testing.assert_array_equal(x, [0, 1, 2, 3])
    del filled
    gc.collect()
    np.testing.assert_array_equal(again, [7] * 4)


def test_results_of_many_kinds():
    run = kernel("""
func.func @main(%x: tensor<?x3xf32>, %i: index) -> (f32, tensor<?x3xf32>, index, tensor<f64>, i1) {
  %c = arith.constant 2.5 : f32
  %d = arith.constant 1.5 : f64
  %t = tensor.from_elements %d : tensor<f64>
  %one = arith.constant 1 : index
  %j = arith.addi %i, %one : index
  %b = arith.cmpi eq, %i, %one : index
  return %c, %x, %j, %t, %b : f32, tensor<?x3xf32>, index, tensor<f64>, i1
}""")
    x = np.ones((2, 3), np.float32)
    c, y, j, t, b = run(x, 1)
    assert (c, j, b) == (2.5, 2, True) and t.shape == () and t[()] == 1.5
    np.testing.assert_array_equal(y, x)


def test_no_results():
    assert kernel("func.func @main(%x: tensor<4xf32>) { return }")(np.zeros(4, np.float32)) is None


def test_empty_and_single():
    run = kernel(graphs.unfused((), "?", "?", 4, 4))
    assert run(*(np.zeros(s, np.float32) for s in ((0, 4), (3, 4), (3, 4)))).shape == (0, 4)
    assert (run(*(np.zeros(s, np.float32) for s in ((2, 4), (0, 4), (0, 4)))) == 0).all()


def test_strides_and_byte_order():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    run = kernel(identity("tensor<?x?xf32>"))
    for view in (x.T, x[::2, 1::2], x[::-1], x.astype(">f4"), np.asfortranarray(x)):
        np.testing.assert_array_equal(run(view), view)
    misaligned = np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1).reshape(4, 6)
    np.testing.assert_array_equal(run(misaligned), x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "'main' takes 2 arguments, but 0 were given"),
        (
            (np.zeros((2, 3), np.float64), 1.0),
            "argument 0 must be tensor<?x3xf32> (numpy's float32), but is an array of",
        ),
        ((np.zeros(3, np.float32), 1.0), "argument 0 must be tensor<?x3xf32>, but is an array of shape (3,)"),
        ((np.zeros((2, 4), np.float32), 1.0), "argument 0 must be tensor<?x3xf32>, but is an array of shape (2, 4)"),
        ((np.zeros((2, 3), np.float32), np.zeros(3)), "argument 1 must be f32, a number, but is an array of"),
        ((np.zeros((2, 3), np.float32), "x"), "argument 1 must be f32, a number, but is of type str"),
        ((None, 1.0), "argument 0, of type NoneType, is no array"),
        (
            (np.ma.masked_equal(np.eye(3, dtype=np.float32), 1), 1.0),
            "argument 0, of type MaskedArray, masks elements, which kernels know nothing of",
        ),
        (([[1.0, 2.0, 3.0], [4.0]], 1.0), "argument 0, of type list, is no array: setting an array element with a"),
    ],
)
def test_wrong_arguments(arguments, message):
    run = kernel("func.func @main(%x: tensor<?x3xf32>, %s: f32) -> tensor<?x3xf32> { return %x : tensor<?x3xf32> }")
    with pytest.raises(DiagnosedError, match=re.escape(message)):
        run(*arguments)


def test_transfers_of_a_graph():
    """Of vectors of two dimensions, which the passes that make vectors know nothing of."""
    f = kernel("""func.func @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty() : tensor<4x8xf32>
      %x = vector.transfer_read %a[%c0, %c0], %zero {in_bounds = [true, true]} : tensor<4x8xf32>, vector<4x8xf32>
      %y = arith.addf %x, %x : vector<4x8xf32>
      %z = vector.transfer_write %y, %empty[%c0, %c0] {in_bounds = [true, true]} : vector<4x8xf32>, tensor<4x8xf32>
      return %z : tensor<4x8xf32>
    }""")
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(f(x), 2 * x)


def test_calls_between_functions():
    run = kernel("""
func.func private @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
  %r = linalg.add ins(%x, %x : tensor<?xf32>, tensor<?xf32>) outs(%x : tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %a = call @twice(%x) : (tensor<?xf32>) -> tensor<?xf32>
  %b = call @twice(%a) : (tensor<?xf32>) -> tensor<?xf32>
  return %b : tensor<?xf32>
}""")
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run(x), 4 * x)
    np.testing.assert_array_equal(x, np.arange(5))


def test_memory_is_freed_and_does_not_grow_with_the_scores():
    """Scores of 4096 × 4096 would be 64 MB per call; fused, a call needs its result and some tiles."""
    run = kernel(graphs.fused(4096, 4096, 16, 16, 64, 128))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((4096, 16), (16, 4096), (4096, 16)))
    run(q, k, v)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(30):
        run(q, k, v)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024  # KB


def test_calls_from_several_threads():
    run = kernel(graphs.fused(64, 64, 16, 16, 16, 32))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((64, 16), (16, 64), (64, 16)))
    expected, found = run(q, k, v), []

    def call():
        for _ in range(20):
            found.append(run(q, k, v))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 80 and all((f == expected).all() for f in found)
