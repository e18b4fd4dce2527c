"""Which dimensions of a function's arguments are found to be equal."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.compiler.diagnostics import DiagnosedError
from attn_opt.compiler.runtime.signature import Signature
from attn_opt.compiler.shapes import argument_dimensions
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module


def parsed(text):
    return parse_module(text, "test.mlir", make_context())


def groups(text):
    """The groups of several members or of no known size, and their sizes."""
    module = parsed(text)
    found = argument_dimensions(module.body.operations[0])
    return [(g, s) for g, s in zip(found.groups, found.sizes, strict=True) if len(g) > 1 or s is None]


def test_loops_of_structured_ops_and_their_inits():
    text = """
    func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x7xf32>, %c: tensor<?x7xf32>) -> tensor<?x7xf32> {
      %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x7xf32>) outs(%c : tensor<?x7xf32>) -> tensor<?x7xf32>
      return %0 : tensor<?x7xf32>
    }"""
    assert groups(text) == [([(0, 0), (2, 0)], None), ([(0, 1), (1, 0)], None), ([(1, 1), (2, 1)], 7)]


def test_sizes_that_pass_through_dim_and_empty():
    text = """
    func.func @f(%a: tensor<?xf32>, %b: tensor<?xf32>, %n: index, %unused: index) -> (tensor<?xf32>, tensor<?xf32>) {
      %c0 = arith.constant 0 : index
      %d = tensor.dim %a, %c0 : tensor<?xf32>
      %e = tensor.empty(%d) : tensor<?xf32>
      %0 = linalg.exp ins(%b : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
      %g = tensor.empty(%n) : tensor<?xf32>
      %1 = linalg.add ins(%0, %a : tensor<?xf32>, tensor<?xf32>) outs(%g : tensor<?xf32>) -> tensor<?xf32>
      return %0, %1 : tensor<?xf32>, tensor<?xf32>
    }"""
    assert groups(text) == [([(0, 0), (1, 0), (2, None)], None)]


def test_slices_casts_and_loops():
    text = """
    func.func @f(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>, %c: tensor<?x4xf32>, %i: index) -> tensor<?x4xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c9 = arith.constant 9 : index
      %s = tensor.extract_slice %a[%i, 0] [%c9, 4] [1, 1] : tensor<?x4xf32> to tensor<?x4xf32>
      %t = tensor.cast %b : tensor<?x4xf32> to tensor<8x4xf32>
      %r = scf.for %k = %c0 to %c9 step %c1 iter_args(%acc = %c) -> (tensor<?x4xf32>) {
        %0 = linalg.add ins(%acc, %s : tensor<?x4xf32>, tensor<?x4xf32>) outs(%acc : tensor<?x4xf32>) -> tensor<?x4xf32>
        scf.yield %0 : tensor<?x4xf32>
      }
      return %r : tensor<?x4xf32>
    }"""
    module = parsed(text)
    found = argument_dimensions(module.body.operations[0])
    sizes = {member: size for group, size in zip(found.groups, found.sizes, strict=True) for member in group}
    assert sizes == {(0, 0): None, (0, 1): 4, (1, 0): 8, (1, 1): 4, (2, 0): 9, (2, 1): 4}


def test_reshapes_keep_what_they_do_not_fold():
    text = """
    func.func @f(%a: tensor<?x6x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
      %0 = tensor.collapse_shape %a [[0, 1], [2]] : tensor<?x6x?xf32> into tensor<?x?xf32>
      %1 = linalg.add ins(%0, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%b : tensor<?x?xf32>) -> tensor<?x?xf32>
      return %1 : tensor<?x?xf32>
    }"""
    assert ([(0, 2), (1, 1)], None) in groups(text)


def test_arrays_are_checked_against_the_groups():
    module = parsed("""
    func.func @f(%a: tensor<?xf32>, %n: index) -> tensor<?xf32> {
      %e = tensor.empty(%n) : tensor<?xf32>
      %0 = linalg.exp ins(%a : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }""")
    signature = Signature.of(module.body.operations[0])
    array = np.zeros(5, np.float32)
    assert [np.shape(x) for x in signature.bind([array, 5])] == [(5,), ()]
    with pytest.raises(DiagnosedError, match="argument 1 must be 5, as dimension 0 of argument 0, but is 6"):
        signature.bind([array, 6])


SLICED = """
func.func @f(%a: tensor<4x?xf32>, %n: index, %m: tensor<i32>) -> (tensor<?x2xf32>, tensor<1x?xf32>) {
  %c1 = arith.constant 1 : index
  %before = arith.subi %n, %c1 : index
  %m0 = tensor.extract %m[] : tensor<i32>
  %m1 = arith.index_cast %m0 : i32 to index
  %s = tensor.extract_slice %a[%before, 0] [%n, 2] [1, 1] : tensor<4x?xf32> to tensor<?x2xf32>
  %t = tensor.extract_slice %a[0, 0] [1, %m1] [1, 1] : tensor<4x?xf32> to tensor<1x?xf32>
  return %s, %t : tensor<?x2xf32>, tensor<1x?xf32>
}"""


def test_slices_stay_within_their_tensors():
    module = parsed(SLICED)
    signature = Signature.of(module.body.operations[0])
    array = np.zeros((4, 7), np.float32)
    for n, m in ((1, 0), (2, 7)):
        signature.bind([array, n, np.array(m, np.int32)])
    for n, m, said in (
        (3, 1, "dimension 0 of argument 0 is 4, but the graph reads 2 to 5 of it, as argument 1 says"),
        (0, 1, "reads -1 to -1 of it, as argument 1 says"),
        (1, 8, "dimension 1 of argument 0 is 7, but the graph reads 0 to 8 of it, as argument 2 says"),
        (1, -1, "reads 0 to -1 of it, as argument 2 says"),
    ):
        with pytest.raises(DiagnosedError, match=said):
            signature.bind([array, n, np.array(m, np.int32)])
    with pytest.raises(DiagnosedError, match=r"dimension 1 of argument 0 is 1, but the graph reads 0 to 2 of it$"):
        signature.bind([array[:, :1], 1, np.array(1, np.int32)])


WRITTEN = """
func.func @f(%a: tensor<4x?xf32>, %x: tensor<1x2xf32>, %n: index, %m: index) -> tensor<4x?xf32> {
  %s = tensor.insert_slice %x into %a[%n, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<4x?xf32>
  %t = tensor.insert_slice %x into %s[0, %m] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<4x?xf32>
  return %t : tensor<4x?xf32>
}"""


@pytest.mark.parametrize("donate", [[], [0]], ids=["copied", "donated"])
def test_slices_are_written_within_their_tensors(donate):
    """A token beyond the end of a cache would be written to other memory."""
    kernel = compile(WRITTEN, donate=donate)
    x = np.full((1, 2), -1, np.float32)
    for n, m in ((0, 0), (3, 5)):
        expected = np.zeros((4, 7), np.float32)
        expected[n, :2] = expected[0, m : m + 2] = -1
        np.testing.assert_array_equal(kernel(np.zeros((4, 7), np.float32), x, n, m), expected)
    for n, m, said in (
        (4, 0, "dimension 0 of argument 0 is 4, but the graph writes 4 to 5 of it, as argument 2 says"),
        (-1, 0, "writes -1 to 0 of it, as argument 2 says"),
        (0, 6, "dimension 1 of a tensor is 7, but the graph writes 6 to 8 of it, as argument 3 says"),
        (10**12, 0, "writes 1000000000000 to"),
    ):
        with pytest.raises(CompileError, match=said):
            kernel(np.zeros((4, 7), np.float32), x, n, m)


def test_what_is_on_a_device_is_not_asked_for():
    """A length that only a GPU's kernel reads is not copied to the host."""

    class OnDevice:
        shape = ()

        def __int__(self):
            raise AssertionError

    module = parsed(SLICED)
    signature = Signature.of(module.body.operations[0])
    array = np.zeros((4, 7), np.float32)
    signature.check_bounds([array, 1, OnDevice()])
    with pytest.raises(DiagnosedError, match="as argument 1 says"):
        signature.check_bounds([array, 9, OnDevice()])
