"""The reference evaluator: linalg structured ops and linalg_ext, against einsum and plain formulas."""

import itertools

import numpy as np
import pytest
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference import evaluate
from attn_opt.dialects.reference.contraction import counting
from attn_opt.dialects.reference.interface import EvaluationError
from harness import CONTEXT
from hypothesis import given
from hypothesis import strategies as st
from properties import examples


def run(source, *arguments, **options):
    results = evaluate(parse_module(source, "test.mlir", CONTEXT), arguments, **options)
    return results[0] if len(results) == 1 else results


def tensor(*shape, element="f32"):
    return f"tensor<{''.join(f'{s}x' for s in shape)}{element}>"


def normal(*shapes, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape) for shape in shapes]


def function(ins, out, op):
    """A function whose last argument is the init of one op."""
    arguments = ", ".join(f"%{i}: {kind}" for i, kind in enumerate([*ins, out]))
    return f"func.func @f({arguments}) -> {out} {{\n{op}\nreturn %r : {out}\n}}"


def named(op, ins, out):
    operands = ", ".join(f"%{i}" for i in range(len(ins)))
    text = f"%r = {op} ins({operands} : {', '.join(ins)}) outs(%{len(ins)} : {out}) -> {out}"
    return function(ins, out, text)


def generic(maps, kinds, ins, out, body):
    operands = ", ".join(f"%{i}" for i in range(len(ins)))
    arguments = ", ".join(f"%x{i}: f32" for i in range(len(ins)))
    loops = ", ".join(f"d{i}" for i in range(len(kinds)))
    maps = ", ".join(f"affine_map<({loops}) -> ({m})>" for m in maps)
    kinds = ", ".join(f'"{kind}"' for kind in kinds)
    return function(
        ins,
        out,
        f"%r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} "
        f"ins({operands} : {', '.join(ins)}) outs(%{len(ins)} : {out}) {{\n"
        f"^bb0({arguments}, %acc: f32):\n{body}\nlinalg.yield %y : f32\n}} -> {out}",
    )


@pytest.mark.parametrize(
    ("op", "a", "b", "c", "subscripts"),
    [
        ("matmul", (5, 7), (7, 3), (5, 3), "mk,kn->mn"),
        ("batch_matmul", (2, 5, 7), (2, 7, 3), (2, 5, 3), "bmk,bkn->bmn"),
        ("matvec", (5, 7), (7,), (5,), "mk,k->m"),
        ("vecmat", (7,), (7, 3), (3,), "k,kn->n"),
        ("dot", (7,), (7,), (), "k,k->"),
        ("batch_matvec", (2, 5, 7), (2, 7), (2, 5), "bmk,bk->bm"),
        ("batch_reduce_matmul", (2, 5, 7), (2, 7, 3), (5, 3), "bmk,bkn->mn"),
        ("mmt4d", (2, 3, 4, 5), (6, 3, 7, 5), (2, 6, 4, 7), "abce,dbfe->adcf"),
    ],
)
def test_named_contractions(op, a, b, c, subscripts):
    source = named(f"linalg.{op}", [tensor(*a), tensor(*b)], tensor(*c))
    x, y, z = normal(a, b, c)
    np.testing.assert_allclose(run(source, x, y, z), z + np.einsum(subscripts, x, y), rtol=1e-12, atol=1e-13)


@given(st.data())
@examples(40)
def test_contractions_of_any_indexing(data):
    """Two factors with any loops in any order, any of them reduced, against einsum."""
    loops = data.draw(st.integers(1, 5), "loops")
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=loops, max_size=loops), "sizes")
    used = [data.draw(st.permutations(range(loops)).flatmap(_prefixes)) for _ in range(2)]
    present = sorted(set(used[0]) | set(used[1]))
    out = data.draw(st.permutations(present).flatmap(_prefixes), "out")
    names = {d: "abcde"[i] for i, d in enumerate(present)}
    number = {d: i for i, d in enumerate(present)}
    maps = [", ".join(f"d{number[d]}" for d in dims) for dims in (*used, out)]
    shapes = [tuple(sizes[d] for d in dims) for dims in (*used, out)]
    kinds = ["parallel" if d in out else "reduction" for d in present]
    body = "%p = arith.mulf %x0, %x1 : f32\n%y = arith.addf %acc, %p : f32"
    source = generic(maps, kinds, [tensor(*s) for s in shapes[:2]], tensor(*shapes[2]), body)
    x, y, z = normal(*shapes)
    subscripts = ",".join("".join(names[d] for d in dims) for dims in used) + "->" + "".join(names[d] for d in out)
    missing = [d for d in present if d not in out]
    expected = (z if missing else 0) + np.einsum(subscripts, x, y)
    if not missing:
        expected = z + expected
    np.testing.assert_allclose(run(source, x, y, z), expected, rtol=1e-12, atol=1e-12)


def _prefixes(order):
    return st.integers(0, len(order)).map(lambda n: list(order[:n]))


@pytest.mark.parametrize(
    ("combiner", "reduce"),
    [
        ("arith.addf", np.sum),
        ("arith.mulf", np.prod),
        ("arith.maximumf", np.max),
        ("arith.minimumf", np.min),
        ("arith.maxnumf", np.max),
    ],
)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_reductions(combiner, reduce, axes):
    shape = (3, 4, 5)
    out = tuple(s for d, s in enumerate(shape) if d not in axes)
    source = function(
        [tensor(*shape)],
        tensor(*out),
        f"%r = linalg.reduce {{ {combiner} }} ins(%0 : {tensor(*shape)}) outs(%1 : {tensor(*out)}) "
        f"dimensions = [{', '.join(map(str, axes))}]",
    )
    x, z = normal(shape, out)
    combine = {np.sum: np.add, np.prod: np.multiply, np.max: np.maximum, np.min: np.minimum}[reduce]
    np.testing.assert_allclose(run(source, x, z), combine(reduce(x, axis=axes), z), rtol=1e-12)


def test_a_reduction_without_a_known_combiner_runs_in_order():
    """acc·0.5 + x over the second loop: a Horner scheme."""
    body = "%h = arith.constant 0.5 : f32\n%s = arith.mulf %acc, %h : f32\n%y = arith.addf %s, %x0 : f32"
    source = generic(["d0, d1", "d0"], ["parallel", "reduction"], [tensor(3, 4)], tensor(3), body)
    x, z = normal((3, 4), (3,))
    expected = z
    for j in range(4):
        expected = expected * 0.5 + x[:, j]
    np.testing.assert_allclose(run(source, x, z), expected, rtol=1e-15)


def test_outputs_that_depend_on_each_other_run_in_order():
    """Maximum and its index along the second dimension."""
    source = """
    func.func @f(%x: tensor<3x5xf32>, %m: tensor<3xf32>, %n: tensor<3xindex>) -> (tensor<3xf32>, tensor<3xindex>) {
      %r:2 = linalg.generic {
          indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>],
          iterator_types = ["parallel", "reduction"]
        } ins(%x : tensor<3x5xf32>) outs(%m, %n : tensor<3xf32>, tensor<3xindex>) {
      ^bb0(%a: f32, %best: f32, %at: index):
        %j = linalg.index 1 : index
        %more = arith.cmpf ogt, %a, %best : f32
        %value = arith.select %more, %a, %best : f32
        %where = arith.select %more, %j, %at : index
        linalg.yield %value, %where : f32, index
      } -> (tensor<3xf32>, tensor<3xindex>)
      return %r#0, %r#1 : tensor<3xf32>, tensor<3xindex>
    }"""
    (x,) = normal((3, 5))
    best, where = run(source, x, np.full(3, -np.inf), np.zeros(3, np.int64))
    np.testing.assert_array_equal(best, x.max(axis=1))
    np.testing.assert_array_equal(where, x.argmax(axis=1))


def test_a_reduction_of_an_expression_with_indices():
    """sum over j of exp(x − m)·j: the terms are computed on whole arrays."""
    body = """
      %j = linalg.index 1 : index
      %k = arith.index_cast %j : index to i64
      %f = arith.sitofp %k : i64 to f32
      %d = arith.subf %x0, %x1 : f32
      %e = math.exp %d : f32
      %p = arith.mulf %e, %f : f32
      %y = arith.addf %p, %acc : f32"""
    source = generic(["d0, d1", "d0", "d0"], ["parallel", "reduction"], [tensor(4, 6), tensor(4)], tensor(4), body)
    x, m, z = normal((4, 6), (4,), (4,))
    expected = z + (np.exp(x - m[:, None]) * np.arange(6)).sum(axis=1)
    np.testing.assert_allclose(run(source, x, m, z), expected, rtol=1e-14)


def test_elementwise_with_a_permuted_output_and_broadcast_inputs():
    body = "%y = arith.subf %x0, %x1 : f32"
    source = generic(
        ["d0, d1", "d1", "d1, d0"], ["parallel", "parallel"], [tensor(3, 5), tensor(5)], tensor(5, 3), body
    )
    x, y, z = normal((3, 5), (5,), (5, 3))
    np.testing.assert_array_equal(run(source, x, y, z), (x - y).T)


def test_elementwise_that_reads_its_init():
    source = generic(["d0", "d0"], ["parallel"], [tensor(5)], tensor(5), "%y = arith.addf %x0, %acc : f32")
    x, z = normal((5,), (5,))
    np.testing.assert_array_equal(run(source, x, z), x + z)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("linalg.exp", lambda x: np.exp(x)),
        ("linalg.elementwise kind=#linalg.elementwise_kind<negf>", lambda x: -x),
        ("linalg.copy", lambda x: x),
        ("linalg.square", lambda x: x * x),
    ],
)
def test_named_elementwise(op, expected):
    source = named(op, [tensor(3, 4)], tensor(3, 4))
    x, z = normal((3, 4), (3, 4))
    np.testing.assert_array_equal(run(source, x, z), expected(x))


def test_broadcast_transpose_fill_map():
    source = """
    func.func @f(%x: tensor<3x4xf32>, %s: f32) -> (tensor<2x3x4xf32>, tensor<4x3xf32>, tensor<5xf32>, tensor<3x4xf32>) {
      %e0 = tensor.empty() : tensor<2x3x4xf32>
      %e1 = tensor.empty() : tensor<4x3xf32>
      %e2 = tensor.empty() : tensor<5xf32>
      %e3 = tensor.empty() : tensor<3x4xf32>
      %0 = linalg.broadcast ins(%x : tensor<3x4xf32>) outs(%e0 : tensor<2x3x4xf32>) dimensions = [0]
      %1 = linalg.transpose ins(%x : tensor<3x4xf32>) outs(%e1 : tensor<4x3xf32>) permutation = [1, 0]
      %2 = linalg.fill ins(%s : f32) outs(%e2 : tensor<5xf32>) -> tensor<5xf32>
      %3 = linalg.map { arith.mulf } ins(%x, %x : tensor<3x4xf32>, tensor<3x4xf32>) outs(%e3 : tensor<3x4xf32>)
      return %0, %1, %2, %3 : tensor<2x3x4xf32>, tensor<4x3xf32>, tensor<5xf32>, tensor<3x4xf32>
    }"""
    (x,) = normal((3, 4))
    wide, turned, filled, squares = run(source, x, 2.5)
    np.testing.assert_array_equal(wide, np.broadcast_to(x, (2, 3, 4)))
    np.testing.assert_array_equal(turned, x.T)
    np.testing.assert_array_equal(filled, np.full(5, 2.5))
    np.testing.assert_array_equal(squares, x * x)


def test_windows_are_strided_views():
    """A convolution with stride 2, and max pooling."""
    source = """
    func.func @f(%x: tensor<1x9x2xf32>, %w: tensor<3x2x4xf32>, %c: tensor<1x4x4xf32>, %p: tensor<1x7x2xf32>)
        -> (tensor<1x4x4xf32>, tensor<1x7x2xf32>) {
      %0 = linalg.conv_1d_nwc_wcf {strides = dense<2> : tensor<1xi64>, dilations = dense<1> : tensor<1xi64>}
        ins(%x, %w : tensor<1x9x2xf32>, tensor<3x2x4xf32>) outs(%c : tensor<1x4x4xf32>) -> tensor<1x4x4xf32>
      %e = tensor.empty() : tensor<3xf32>
      %1 = linalg.pooling_nwc_max {strides = dense<1> : tensor<1xi64>, dilations = dense<1> : tensor<1xi64>}
        ins(%x, %e : tensor<1x9x2xf32>, tensor<3xf32>) outs(%p : tensor<1x7x2xf32>) -> tensor<1x7x2xf32>
      return %0, %1 : tensor<1x4x4xf32>, tensor<1x7x2xf32>
    }"""
    x, w, c, p = normal((1, 9, 2), (3, 2, 4), (1, 4, 4), (1, 7, 2))
    convolved, pooled = run(source, x, w, c, p)
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=1)
    np.testing.assert_allclose(convolved, c + np.einsum("nwck,kcf->nwf", windows[:, ::2], w), rtol=1e-13)
    np.testing.assert_array_equal(pooled, np.maximum(windows.max(axis=-1), p))


def test_maps_that_are_not_linear_are_gathered():
    source = generic(["d0 floordiv 2", "d0"], ["parallel"], [tensor(3)], tensor(6), "%y = arith.negf %x0 : f32")
    x, z = normal((3,), (6,))
    np.testing.assert_array_equal(run(source, x, z), -np.repeat(x, 2))


def test_operands_that_disagree_on_a_loop_are_an_error():
    source = named("linalg.matmul", [tensor("?", "?"), tensor("?", "?")], tensor("?", "?"))
    with pytest.raises(EvaluationError, match=r"'linalg\.matmul' cannot be evaluated: operands disagree.*7 and 6"):
        run(source, *normal((5, 7), (6, 3), (5, 3)))


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_linalg_ext_batch_matmul(layout, batch):
    a = (*batch, *((5, 7) if layout[0] == "n" else (7, 5)))
    b = (*batch, *((7, 4) if layout[1] == "n" else (4, 7)))
    c = (*batch, 5, 4)
    source = function(
        [tensor(*a), tensor(*b)],
        tensor(*c),
        f"%r = linalg_ext.batch_matmul ins(%0, %1 : {tensor(*a)}, {tensor(*b)}) outs(%2 : {tensor(*c)}) "
        f'layout = "{layout}"',
    )
    x, y, z = normal(a, b, c)
    with counting() as counter:
        found = run(source, x, y, z)
    x = x if layout[0] == "n" else np.swapaxes(x, -1, -2)
    y = y if layout[1] == "n" else np.swapaxes(y, -1, -2)
    np.testing.assert_allclose(found, z + x @ y, rtol=1e-12, atol=1e-13)
    assert counter.flops == 2 * 5 * 4 * 7 * int(np.prod(batch))


def softmax_source(name, shape, axis):
    full, row = tensor(*shape), tensor(*(s for d, s in enumerate(shape) if d != axis))
    kinds = f"{full}, {row}, {row}, {row}"
    return (
        f"func.func @f(%x: {full}, %m: {row}, %a: {row}) -> ({kinds}) {{\n%e = tensor.empty() : {full}\n"
        f"%s = tensor.empty() : {row}\n%r:4 = linalg_ext.{name} dimension({axis}) ins(%x : {full}) "
        f"outs(%e, %m, %a, %s : {kinds}) : {kinds}\nreturn %r#0, %r#1, %r#2, %r#3 : {kinds}\n}}"
    )


@pytest.mark.parametrize("name", ["softmax", "unnorm_softmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@given(shape=st.tuples(*[st.integers(1, 5)] * 3), seed=st.integers(0, 100))
@examples(10)
def test_online_softmax(name, axis, shape, seed):
    """The formulas of the op, from statistics of an earlier step."""
    rows = tuple(s for d, s in enumerate(shape) if d != axis)
    x, m0, a0 = normal(shape, rows, rows, seed=seed)
    a0 = np.abs(a0) + 0.5
    result, m, a, scale = run(softmax_source(name, shape, axis), x, m0, a0)
    new_m = np.maximum(m0, x.max(axis=axis))
    p = np.exp(x - np.expand_dims(new_m, axis))
    new_a = a0 * np.exp(m0 - new_m) + p.sum(axis=axis)
    normal_form = name == "softmax"
    np.testing.assert_allclose(m, new_m, rtol=1e-14)
    np.testing.assert_allclose(a, new_a, rtol=1e-14)
    np.testing.assert_allclose(result, p / np.expand_dims(new_a, axis) if normal_form else p, rtol=1e-14)
    np.testing.assert_allclose(
        scale, a0 * np.exp(m0 - new_m) / new_a if normal_form else np.exp(m0 - new_m), rtol=1e-14
    )


@pytest.mark.parametrize("name", ["softmax", "unnorm_softmax"])
def test_masked_rows_are_zero(name):
    x = np.full((3, 4), -np.inf)
    x[1] = [0.0, -np.inf, 1.0, -np.inf]
    m0, a0 = np.array([-np.inf, -np.inf, 2.0]), np.array([0.0, 0.0, 1.5])
    result, m, a, scale = run(softmax_source(name, (3, 4), 1), x, m0, a0)
    np.testing.assert_array_equal(result[[0, 2]], 0.0)
    np.testing.assert_array_equal(m, [-np.inf, 1.0, 2.0])
    np.testing.assert_allclose(a, [0.0, 1.0 + np.exp(-1.0), 1.5])
    np.testing.assert_array_equal(scale, [0.0, 0.0, 1.0])


def test_upstream_softmax():
    source = named("linalg.softmax dimension(1)", [tensor(3, 4, 5)], tensor(3, 4, 5))
    x, z = normal((3, 4, 5), (3, 4, 5))
    p = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(run(source, x, z), p / p.sum(axis=1, keepdims=True), rtol=1e-14)


def test_diag():
    source = function(
        [tensor(2, 3)],
        tensor(2, 3, 3),
        "%r = linalg_ext.diag ins(%0 : tensor<2x3xf32>) outs(%1 : tensor<2x3x3xf32>) : tensor<2x3x3xf32>",
    )
    x, z = normal((2, 3), (2, 3, 3))
    np.testing.assert_array_equal(run(source, x, z), np.stack([np.diag(row) for row in x]))


def test_values_still_needed_are_never_overwritten():
    """Large enough for memory to be reused: every value is used twice, or aliases one that is."""
    n = 200
    full = tensor(n, n)
    source = f"""
    func.func @f(%x: {full}) -> ({full}, {full}, {full}) {{
      %e = tensor.empty() : {full}
      %rows = tensor.empty() : {tensor(n)}
      %0 = linalg.exp ins(%x : {full}) outs(%e : {full}) -> {full}
      %1 = linalg.transpose ins(%0 : {full}) outs(%e : {full}) permutation = [1, 0]
      %2 = linalg.negf ins(%0 : {full}) outs(%e : {full}) -> {full}
      %3 = linalg.softmax dimension(1) ins(%2 : {full}) outs(%e : {full}) -> {full}
      %4 = linalg.add ins(%2, %3 : {full}, {full}) outs(%e : {full}) -> {full}
      %5 = linalg.exp ins(%4 : {full}) outs(%e : {full}) -> {full}
      return %1, %3, %5 : {full}, {full}, {full}
    }}"""
    (x,) = normal((n, n))
    kept = x.copy()
    turned, soft, last = run(source, x)
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(turned, np.exp(x).T)
    y = -np.exp(x)
    p = np.exp(y - y.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(soft, p, rtol=1e-14)
    np.testing.assert_allclose(last, np.exp(y + p), rtol=1e-14)


@pytest.mark.parametrize("shape", list(itertools.product([0, 3], [0, 4])))
def test_empty_tensors(shape):
    source = named("linalg.matmul", [tensor("?", "?"), tensor("?", 2)], tensor("?", 2))
    m, k = shape
    x, y, z = normal((m, k), (k, 2), (m, 2))
    np.testing.assert_allclose(run(source, x, y, z), z + x @ y, rtol=1e-13)
