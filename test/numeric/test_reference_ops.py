"""The reference evaluator: scalar and elementwise ops, tensor ops, loops, against plain numpy."""

import math

import numpy as np
import pytest
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference import evaluate
from attn_opt.dialects.reference.interface import EvaluationError
from harness import CONTEXT


def run(source, *arguments, **options):
    results = evaluate(parse_module(source, "test.mlir", CONTEXT), arguments, **options)
    return results[0] if len(results) == 1 else results


def scalar_function(body, inputs, result):
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in inputs.items())
    return f"func.func @f({arguments}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("arith.addi", 100, 100, -56),
        ("arith.subi", 3, 5, -2),
        ("arith.muli", 7, -3, -21),
        ("arith.divsi", -7, 2, -3),
        ("arith.floordivsi", -7, 2, -4),
        ("arith.ceildivsi", -7, 2, -3),
        ("arith.ceildivsi", 7, 2, 4),
        ("arith.remsi", -7, 2, -1),
        ("arith.divui", -1, 2, 127),
        ("arith.remui", -1, 7, 255 % 7),
        ("arith.maxsi", -1, 1, 1),
        ("arith.maxui", -1, 1, -1),
        ("arith.minui", -1, 1, 1),
        ("arith.shli", 1, 3, 8),
        ("arith.shrsi", -8, 1, -4),
        ("arith.shrui", -8, 1, 124),
        ("arith.xori", 6, 3, 5),
    ],
)
def test_integers_are_computed_in_their_type(op, a, b, expected):
    source = scalar_function(f"%r = {op} %a, %b : i8", {"a": "i8", "b": "i8"}, "i8")
    result = run(source, np.int8(a), np.int8(b))
    assert result == expected
    assert result.dtype == np.int8


@pytest.mark.parametrize(("op", "table"), [("addi", [0, 1, 1, 0]), ("muli", [0, 0, 0, 1]), ("maxsi", [0, 0, 0, 1])])
def test_one_bit_integers_wrap(op, table):
    source = scalar_function(f"%r = arith.{op} %a, %b : i1", {"a": "i1", "b": "i1"}, "i1")
    assert [int(run(source, bool(a), bool(b))) for a in (0, 1) for b in (0, 1)] == table


@pytest.mark.parametrize(
    ("predicate", "a", "b", "expected"),
    [
        ("slt", -1, 1, True),
        ("ult", -1, 1, False),
        ("uge", -1, 1, True),
        ("eq", 4, 4, True),
        ("ne", 4, 4, False),
        ("sge", 4, 4, True),
    ],
)
def test_integer_comparisons(predicate, a, b, expected):
    source = scalar_function(f"%r = arith.cmpi {predicate}, %a, %b : i32", {"a": "i32", "b": "i32"}, "i1")
    assert run(source, a, b) == expected


@pytest.mark.parametrize("predicate", ["oeq", "ogt", "oge", "olt", "ole", "one", "ord", "false"])
def test_ordered_and_unordered_comparisons_are_complements(predicate):
    opposite = {
        "oeq": "une",
        "ogt": "ule",
        "oge": "ult",
        "olt": "uge",
        "ole": "ugt",
        "one": "ueq",
        "ord": "uno",
        "false": "true",
    }[predicate]
    source = """
    func.func @f(%a: f32, %b: f32) -> (i1, i1) {
      %0 = arith.cmpf PREDICATE, %a, %b : f32
      %1 = arith.cmpf OPPOSITE, %a, %b : f32
      return %0, %1 : i1, i1
    }""".replace("PREDICATE", predicate).replace("OPPOSITE", opposite)
    for a in (1.0, 2.0, math.nan):
        for b in (1.0, 2.0, math.nan):
            found, other = run(source, a, b)
            assert found != other
            if math.isnan(a) or math.isnan(b):
                assert not found


def test_maximumf_propagates_nan_and_maxnumf_does_not():
    source = """
    func.func @f(%a: f32, %b: f32) -> (f32, f32) {
      %0 = arith.maximumf %a, %b : f32
      %1 = arith.maxnumf %a, %b : f32
      return %0, %1 : f32, f32
    }"""
    found, number = run(source, math.nan, 1.0)
    assert math.isnan(found)
    assert number == 1.0


def test_constants_are_exact_and_casts_do_not_round_unless_asked():
    source = """
    func.func @f() -> (f64, tensor<3xbf16>, f16) {
      %0 = arith.constant 0.1 : f32
      %1 = arith.extf %0 : f32 to f64
      %2 = arith.constant dense<[1.0, 0x7F80, -3.140625]> : tensor<3xbf16>
      %3 = arith.truncf %0 : f32 to f16
      return %1, %2, %3 : f64, tensor<3xbf16>, f16
    }"""
    wide, vector, narrow = run(source)
    assert wide == float(np.float32(0.1))
    np.testing.assert_array_equal(vector, [1.0, math.inf, -3.140625])
    assert narrow == float(np.float32(0.1))
    assert run(source, round_values=True)[2] == float(np.float16(0.1))


def test_large_bf16_constant_in_hexadecimal():
    values = np.arange(128)
    text = ", ".join(f"{v}.0" for v in values)
    source = scalar_function(f"%r = arith.constant dense<[{text}]> : tensor<128xbf16>", {}, "tensor<128xbf16>")
    np.testing.assert_array_equal(run(source), values)


def test_splat_constants_take_no_memory():
    source = """
    func.func @f() -> f32 {
      %c = arith.constant dense<2.5> : tensor<1000000x1000000xf32>
      %i = arith.constant 5 : index
      %r = tensor.extract %c[%i, %i] : tensor<1000000x1000000xf32>
      return %r : f32
    }"""
    assert run(source) == 2.5


def test_casts_between_kinds():
    source = """
    func.func @f(%a: i8, %b: i1, %c: f32) -> (f32, f32, f32, i32, index) {
      %0 = arith.sitofp %a : i8 to f32
      %1 = arith.uitofp %a : i8 to f32
      %2 = arith.sitofp %b : i1 to f32
      %3 = arith.fptosi %c : f32 to i32
      %4 = arith.index_cast %3 : i32 to index
      return %0, %1, %2, %3, %4 : f32, f32, f32, i32, index
    }"""
    assert [float(x) for x in run(source, np.int8(-1), True, -2.7)] == [-1.0, 255.0, -1.0, -2.0, -2.0]


def test_bitcast_reads_the_declared_type():
    source = scalar_function("%r = arith.bitcast %a : f32 to i32", {"a": "f32"}, "i32")
    assert run(source, 1.0) == 0x3F800000


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("exp", np.exp),
        ("exp2", np.exp2),
        ("tanh", np.tanh),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("erf", np.vectorize(math.erf)),
        ("absf", np.abs),
        ("log1p", np.log1p),
        ("round", lambda x: np.floor(x + 0.5)),
    ],
)
def test_math_functions(op, function):
    x = np.linspace(0.1, 3.0, 7)
    source = scalar_function(f"%r = math.{op} %x : tensor<7xf64>", {"x": "tensor<7xf64>"}, "tensor<7xf64>")
    np.testing.assert_allclose(run(source, x), function(x), rtol=1e-15)


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [(2, 3, 8), (-3, 3, -27), (7, 0, 1), (1, -3, 1), (-1, -3, -1), (-1, -4, 1), (2, -1, 0), (-7, -2, 0)],
)
def test_integer_powers(base, exponent, expected):
    """A quotient 1/baseⁿ is rounded towards zero."""
    source = scalar_function("%r = math.ipowi %a, %b : i32", {"a": "i32", "b": "i32"}, "i32")
    found = run(source, np.int32(base), np.int32(exponent))
    assert found == expected and found.dtype == np.int32


@pytest.mark.parametrize(("op", "kind"), [("powf", "f32"), ("fpowi", "i32")])
def test_powers(op, kind):
    kinds = "f32" if op == "powf" else "f32, i32"
    source = scalar_function(f"%r = math.{op} %a, %b : {kinds}", {"a": "f32", "b": kind}, "f32")
    assert run(source, 1.5, (np.float64 if op == "powf" else np.int32)(-2)) == 1.5**-2


@pytest.mark.parametrize(("x", "count"), [(0, 0), (1, 1), (-1, 8), (-128, 1), (127, 7)])
def test_bits_are_counted_in_twos_complement(x, count):
    source = scalar_function("%r = math.ctpop %a : i8", {"a": "i8"}, "i8")
    assert run(source, np.int8(x)) == count


def test_slices_with_strides_and_dropped_dimensions():
    source = """
    func.func @f(%a: tensor<4x1x9xf32>, %i: index, %n: index) -> (tensor<2x?xf32>, tensor<4x1x9xf32>) {
      %s = tensor.extract_slice %a[1, 0, %i] [2, 1, %n] [1, 1, 2] : tensor<4x1x9xf32> to tensor<2x?xf32>
      %r = tensor.insert_slice %s into %a[0, 0, 0] [2, 1, %n] [2, 1, 1] : tensor<2x?xf32> into tensor<4x1x9xf32>
      return %s, %r : tensor<2x?xf32>, tensor<4x1x9xf32>
    }"""
    a = np.arange(36.0).reshape(4, 1, 9)
    part, whole = run(source, a, 2, 3)
    np.testing.assert_array_equal(part, a[1:3, 0, 2:7:2])
    expected = a.copy()
    expected[0:4:2, 0, 0:3] = part
    np.testing.assert_array_equal(whole, expected)
    assert a[0, 0, 0] == 0.0, "the caller's array is left alone"


def test_a_slice_that_leaves_its_tensor_is_an_error():
    source = """
    func.func @f(%a: tensor<?xf32>, %i: index) -> tensor<4xf32> {
      %s = tensor.extract_slice %a[%i] [4] [1] : tensor<?xf32> to tensor<4xf32>
      return %s : tensor<4xf32>
    }"""
    with pytest.raises(EvaluationError, match=r"leaves dimension 0, which has size 6.*test\.mlir.*3"):
        run(source, np.zeros(6), 3)


def test_shapes_padding_and_generation():
    source = """
    func.func @f(%a: tensor<6x4xf32>, %v: f32)
        -> (tensor<2x3x4xf32>, tensor<24xf32>, tensor<9x4xf32>, tensor<2x3xindex>) {
      %0 = tensor.expand_shape %a [[0, 1], [2]] output_shape [2, 3, 4] : tensor<6x4xf32> into tensor<2x3x4xf32>
      %1 = tensor.collapse_shape %a [[0, 1]] : tensor<6x4xf32> into tensor<24xf32>
      %2 = tensor.pad %a low[1, 0] high[2, 0] {
      ^bb0(%i: index, %j: index):
        tensor.yield %v : f32
      } : tensor<6x4xf32> to tensor<9x4xf32>
      %3 = tensor.generate {
      ^bb0(%i: index, %j: index):
        %s = arith.addi %i, %j : index
        tensor.yield %s : index
      } : tensor<2x3xindex>
      return %0, %1, %2, %3 : tensor<2x3x4xf32>, tensor<24xf32>, tensor<9x4xf32>, tensor<2x3xindex>
    }"""
    a = np.arange(24.0).reshape(6, 4)
    expanded, collapsed, padded, generated = run(source, a, 7.0)
    np.testing.assert_array_equal(expanded, a.reshape(2, 3, 4))
    np.testing.assert_array_equal(collapsed, a.reshape(24))
    np.testing.assert_array_equal(padded, np.pad(a, ((1, 2), (0, 0)), constant_values=7.0))
    np.testing.assert_array_equal(generated, np.add.outer(np.arange(2), np.arange(3)))


def test_small_tensor_ops():
    source = """
    func.func @f(%a: tensor<2x?xf32>, %x: f32) -> (index, tensor<2xf32>, tensor<4x?xf32>, tensor<2x?xf32>) {
      %c1 = arith.constant 1 : index
      %c0 = arith.constant 0 : index
      %d = tensor.dim %a, %c1 : tensor<2x?xf32>
      %e = tensor.from_elements %x, %x : tensor<2xf32>
      %g = tensor.concat dim(0) %a, %a : (tensor<2x?xf32>, tensor<2x?xf32>) -> tensor<4x?xf32>
      %h = tensor.insert %x into %a[%c1, %c0] : tensor<2x?xf32>
      return %d, %e, %g, %h : index, tensor<2xf32>, tensor<4x?xf32>, tensor<2x?xf32>
    }"""
    a = np.arange(6.0).reshape(2, 3)
    size, elements, joined, inserted = run(source, a, 9.0)
    assert size == 3
    np.testing.assert_array_equal(elements, [9.0, 9.0])
    np.testing.assert_array_equal(joined, np.concatenate([a, a]))
    assert inserted[1, 0] == 9.0
    assert a[1, 0] == 3.0


def test_splat_rank_reshape_and_gather():
    source = """
    func.func @f(%a: tensor<2x3x4xf32>, %x: f32, %n: index, %shape: tensor<2xindex>, %at: tensor<5x2xindex>)
        -> (tensor<2x?xf32>, index, tensor<?x?xf32>, tensor<5x3xf32>, tensor<5x1x3x1xf32>) {
      %s = tensor.splat %x[%n] : tensor<2x?xf32>
      %r = tensor.rank %a : tensor<2x3x4xf32>
      %m = tensor.reshape %a(%shape) : (tensor<2x3x4xf32>, tensor<2xindex>) -> tensor<?x?xf32>
      %g = tensor.gather %a[%at] gather_dims([0, 2]) : (tensor<2x3x4xf32>, tensor<5x2xindex>) -> tensor<5x3xf32>
      %h = tensor.gather %a[%at] gather_dims([0, 2]) : (tensor<2x3x4xf32>, tensor<5x2xindex>) -> tensor<5x1x3x1xf32>
      return %s, %r, %m, %g, %h : tensor<2x?xf32>, index, tensor<?x?xf32>, tensor<5x3xf32>, tensor<5x1x3x1xf32>
    }"""
    a = np.arange(24.0).reshape(2, 3, 4)
    at = np.array([[0, 0], [1, 3], [0, 2], [1, 1], [1, 0]])
    splat, rank, reshaped, gathered, kept = run(source, a, 2.0, 3, np.array([6, 4]), at)
    np.testing.assert_array_equal(splat, np.full((2, 3), 2.0))
    assert rank == 3
    np.testing.assert_array_equal(reshaped, a.reshape(6, 4))
    np.testing.assert_array_equal(gathered, np.array([a[i, :, j] for i, j in at]))
    np.testing.assert_array_equal(kept, gathered[:, None, :, None])


def test_loops_of_affine_and_of_scf_in_parallel():
    source = """
    func.func @f(%n: index, %a: tensor<12xf32>) -> (f32, f32, f32, index) {
      %zero = arith.constant 0.0 : f32
      %low = arith.constant -1.0e30 : f32
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %s = affine.for %i = max affine_map<(n) -> (1, n - 4)>(%n) to min affine_map<(n) -> (n, 9)>(%n) step 2
          iter_args(%acc = %zero) -> (f32) {
        %x = tensor.extract %a[%i] : tensor<12xf32>
        %y = arith.addf %acc, %x : f32
        affine.yield %y : f32
      }
      %t:2 = scf.parallel (%i, %j) = (%c0, %c1) to (%n, %c2) step (%c2, %c1) init (%zero, %low) -> (f32, f32) {
        %k = arith.addi %i, %j : index
        %x = tensor.extract %a[%k] : tensor<12xf32>
        scf.reduce(%x, %x : f32, f32) {
        ^bb0(%p: f32, %q: f32):
          %y = arith.addf %p, %q : f32
          scf.reduce.return %y : f32
        }, {
        ^bb0(%p: f32, %q: f32):
          %y = arith.maximumf %p, %q : f32
          scf.reduce.return %y : f32
        }
      }
      %e = scf.execute_region -> index {
        %r = arith.addi %n, %c2 : index
        scf.yield %r : index
      }
      return %s, %t#0, %t#1, %e : f32, f32, f32, index
    }"""
    a = np.arange(12.0) ** 2
    assert [float(x) for x in run(source, 10, a)] == [a[6] + a[8], a[[1, 3, 5, 7, 9]].sum(), a[9], 12.0]


def test_loops_branches_and_calls():
    source = """
    func.func private @square(%x: f32) -> f32 {
      %0 = arith.mulf %x, %x : f32
      return %0 : f32
    }
    func.func @f(%n: index, %limit: f32) -> (f32, index) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %zero = arith.constant 0.0 : f32
      %sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (f32) {
        %k = arith.index_cast %i : index to i64
        %x = arith.sitofp %k : i64 to f32
        %y = func.call @square(%x) : (f32) -> f32
        %next = arith.addf %acc, %y : f32
        scf.yield %next : f32
      }
      %big = arith.cmpf ogt, %sum, %limit : f32
      %r = scf.if %big -> (f32) {
        scf.yield %limit : f32
      } else {
        scf.yield %sum : f32
      }
      %count = scf.while (%i = %c0) : (index) -> index {
        %more = arith.cmpi slt, %i, %n : index
        scf.condition(%more) %i : index
      } do {
      ^bb0(%i: index):
        %next = arith.addi %i, %c1 : index
        scf.yield %next : index
      }
      return %r, %count : f32, index
    }"""
    assert [float(x) for x in run(source, 5, 100.0, entry="f")] == [30.0, 5.0]
    assert [float(x) for x in run(source, 5, 10.0, entry="f")] == [10.0, 5.0]


def test_forall_reads_the_outputs_as_they_were():
    source = """
    func.func @f(%a: tensor<6xf32>) -> tensor<6xf32> {
      %r = scf.forall (%i) in (6) shared_outs(%o = %a) -> (tensor<6xf32>) {
        %back = affine.apply affine_map<(i) -> (5 - i)>(%i)
        %s = tensor.extract_slice %o[%back] [1] [1] : tensor<6xf32> to tensor<1xf32>
        scf.forall.in_parallel {
          tensor.parallel_insert_slice %s into %o[%i] [1] [1] : tensor<1xf32> into tensor<6xf32>
        }
      }
      return %r : tensor<6xf32>
    }"""
    a = np.arange(6.0)
    np.testing.assert_array_equal(run(source, a), a[::-1])


def test_affine_maps():
    source = """
    func.func @f(%a: index, %b: index) -> (index, index, index) {
      %0 = affine.apply affine_map<(d0)[s0] -> (d0 * 3 + s0 floordiv 2)>(%a)[%b]
      %1 = affine.min affine_map<(d0)[s0] -> (8, s0 - d0)>(%a)[%b]
      %2 = affine.max affine_map<(d0)[s0] -> (d0 mod 4, s0 ceildiv 4)>(%a)[%b]
      return %0, %1, %2 : index, index, index
    }"""
    assert [int(x) for x in run(source, 6, 11)] == [23, 5, 3]


def test_uninitialised_tensors_read_as_nan():
    source = scalar_function("%r = tensor.empty() : tensor<3xf32>", {}, "tensor<3xf32>")
    assert np.isnan(run(source)).all()


def test_unknown_ops_are_named_with_their_place():
    source = """
    func.func @f(%a: f32) -> f32 {
      %0 = "llvm.intr.sqrt"(%a) : (f32) -> f32
      return %0 : f32
    }"""
    with pytest.raises(EvaluationError, match=r"no meaning for the op 'llvm\.intr\.sqrt'.*test\.mlir.*:3"):
        run(source, 1.0)


def test_arguments_are_checked():
    source = scalar_function("%r = arith.addf %a, %a : tensor<4xf32>", {"a": "tensor<4xf32>"}, "tensor<4xf32>")
    with pytest.raises(EvaluationError, match="expects 1 arguments, but found 2"):
        run(source, np.zeros(4), np.zeros(4))
    with pytest.raises(EvaluationError, match=r"argument 0: expects tensor<4xf32>, but found an array of shape \(5,\)"):
        run(source, np.zeros(5))
    with pytest.raises(EvaluationError, match="no function 'g'"):
        run(source, np.zeros(4), entry="g")


def test_rounding_large_values_leaves_shared_memory_alone():
    source = """
    func.func @f(%a: tensor<300x300xf32>) -> (tensor<300x300xf16>, tensor<300x300xf32>) {
      %e = tensor.empty() : tensor<300x300xf16>
      %0 = arith.truncf %a : tensor<300x300xf32> to tensor<300x300xf16>
      return %0, %a : tensor<300x300xf16>, tensor<300x300xf32>
    }"""
    a = np.random.default_rng(0).standard_normal((300, 300))
    kept = a.copy()
    narrow, wide = run(source, a, round_values=True)
    np.testing.assert_array_equal(narrow, a.astype(np.float16).astype(np.float64))
    np.testing.assert_array_equal(wide, kept)
    np.testing.assert_array_equal(a, kept)


def test_flags_of_large_floats_are_bits():
    text = """func.func @f(%a: tensor<40000xf32>) -> tensor<40000xi1> {
      %b = arith.addf %a, %a : tensor<40000xf32>
      %r = math.isnan %b : tensor<40000xf32>
      return %r : tensor<40000xi1>
    }"""
    values = np.zeros(40000)
    values[3] = math.nan
    found = run(text, values)
    assert found.dtype == np.bool_ and np.flatnonzero(found).tolist() == [3]
