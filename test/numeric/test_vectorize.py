"""Structured ops of every kind on random data against numpy: the vectorizer and what comes after it."""

import itertools
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from harness import kernel, relative_error
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
    "i64": np.int64,
    "i8": np.int8,
    "i1": np.bool_,
}
TOLERANCE = {"f32": 3e-6, "f64": 1e-14, "f16": 2e-3, "bf16": 1.6e-2}


def tensor(shape: Sequence[int], kind: str, dynamic: bool = False) -> str:
    return "tensor<" + "".join(f"{'?' if dynamic else s}x" for s in shape) + kind + ">"


def generic(sizes, maps, iterators, ins, outs, body, dynamic=False):
    """A function around one linalg.generic; `maps` are tuples of loops, `ins` and `outs` element types."""
    n = len(sizes)
    loops = ", ".join(f"d{i}" for i in range(n))
    texts = [f"affine_map<({loops}) -> ({', '.join(f'd{d}' for d in m)})>" for m in maps]
    shapes = [[sizes[d] for d in m] for m in maps]
    types = [tensor(s, k, dynamic) for s, k in zip(shapes, [*ins, *outs], strict=True)]
    names = [f"%a{i}" for i in range(len(types))]
    n_in = len(ins)
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    inputs = f"ins({', '.join(names[:n_in])} : {', '.join(types[:n_in])})" if n_in else ""
    kinds = ", ".join(f'"{i}"' for i in iterators)
    results = ", ".join(types[n_in:])
    many = len(outs) > 1
    scalars = ", ".join(f"%x{i}: {k}" for i, k in enumerate([*ins, *outs]))
    returned = ", ".join(f"%r#{i}" for i in range(len(outs))) if many else "%r"
    return (
        f"""
func.func @main({arguments}) -> ({results}) {{
  %r{f":{len(outs)}" if many else ""} = linalg.generic {{indexing_maps = [{", ".join(texts)}],
                      iterator_types = [{kinds}]}}
    {inputs} outs({", ".join(names[n_in:])} : {results}) {{
    ^bb0({scalars}):
      {body}
  }} -> ({results})
  return {returned} : {results}
}}""",
        shapes,
    )


def random(rng, shape, kind):
    dtype = np.dtype(DTYPES[kind])
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind == "i":
        return rng.integers(-50, 50, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def run(text, shapes, kinds, seed=0, **options):
    rng = np.random.default_rng(seed)
    arrays = [random(rng, s, k) for s, k in zip(shapes, kinds, strict=True)]
    return arrays, kernel(text, **options)(*arrays)


def widen(a):
    return a.astype(np.float64) if a.dtype.kind not in "iub" else a


SUBSCRIPT = "ijklmnop"
MULTIPLY_ADD = "%p = arith.mulf %x0, %x1 : {t}\n %s = arith.addf %x2, %p : {t}\n linalg.yield %s : {t}"


@st.composite
def contractions(draw):
    """Sizes, maps and iterators of C += A·B with batch, row, column and summed loops in any order in any operand."""
    groups = [draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.integers(1, 2))]
    n = sum(groups)
    numbers = list(draw(st.permutations(range(n))))
    batch, rows, columns, summed = ([numbers.pop() for _ in range(count)] for count in groups)
    sizes = [draw(st.sampled_from([1, 2, 3, 5, 7, 16, 17, 33])) for _ in range(n)]
    if np.prod(sizes) > 50_000:
        sizes = [min(s, 5) for s in sizes]
    a, b, c = (
        list(draw(st.permutations(part)))
        for part in (batch + rows + summed, batch + columns + summed, batch + rows + columns)
    )
    iterators = ["reduction" if d in summed else "parallel" for d in range(n)]
    return sizes, (a, b, c), iterators


@examples(25)
@given(
    contractions(),
    st.sampled_from(["f32", "f64", "f16", "bf16"]),
    st.booleans(),
    st.sampled_from([0, 16, 32]),
)
def test_contraction(spec, kind, dynamic, vector_bytes):
    sizes, maps, iterators = spec
    body = MULTIPLY_ADD.format(t=kind)
    text, shapes = generic(sizes, maps, iterators, [kind, kind], [kind], body, dynamic)
    (a, b, c), found = run(text, shapes, [kind] * 3, vector_bytes=vector_bytes)
    names = ["".join(SUBSCRIPT[d] for d in m) for m in maps]
    expected = np.einsum(f"{names[0]},{names[1]}->{names[2]}", widen(a), widen(b)) + widen(c)
    assert relative_error(found, expected) < TOLERANCE[kind], text


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("sizes", [(8, 64, 32), (5, 33, 7)])
def test_contraction_widens(kind, sizes):
    body = f"""%u = arith.extf %x0 : {kind} to f32
      %v = arith.extf %x1 : {kind} to f32
      %p = arith.mulf %u, %v : f32
      %s = arith.addf %x2, %p : f32
      linalg.yield %s : f32"""
    maps = [(0, 2), (1, 2), (0, 1)]
    text, shapes = generic(sizes, maps, ["parallel", "parallel", "reduction"], [kind, kind], ["f32"], body)
    (a, b, c), found = run(text, shapes, [kind, kind, "f32"])
    # A matrix unit leaves out the products of the lower parts of f16: 2^-16 of a product.
    assert relative_error(found, widen(a) @ widen(b).T + c) < (2**-16 if kind == "f16" else 3e-6)


def test_integer_contraction():
    body = "%p = arith.muli %x0, %x1 : i32\n %s = arith.addi %x2, %p : i32\n linalg.yield %s : i32"
    maps = [(0, 2), (2, 1), (0, 1)]
    text, shapes = generic((9, 21, 5), maps, ["parallel", "parallel", "reduction"], ["i32"] * 2, ["i32"], body)
    (a, b, c), found = run(text, shapes, ["i32"] * 3)
    assert (found == a @ b + c).all()


REDUCTIONS = {
    "arith.addf": (np.sum, np.add),
    "arith.mulf": (np.prod, np.multiply),
    "arith.maxnumf": (np.max, np.maximum),
    "arith.minimumf": (np.min, np.minimum),
    "arith.maximumf": (np.max, np.maximum),
    "arith.maxsi": (np.max, np.maximum),
    "arith.addi": (np.sum, np.add),
    "arith.andi": (np.bitwise_and.reduce, np.bitwise_and),
}


@examples(25)
@given(
    st.sampled_from(list(REDUCTIONS)),
    st.lists(st.sampled_from([1, 2, 3, 4, 7, 16, 31, 65]), min_size=1, max_size=3),
    st.integers(1, 7),
    st.booleans(),
    st.data(),
)
def test_reduction(op, sizes, which, dynamic, data):
    n = len(sizes)
    reduced = tuple(d for d in range(n) if which >> d & 1) or (0,)
    kind = data.draw(st.sampled_from(["f32", "f64", "f16"] if op.endswith("f") else ["i32", "i64", "i8"]))
    source = tuple(data.draw(st.permutations(range(n))))
    kept = tuple(d for d in range(n) if d not in reduced)
    body = f"%s = {op} %x1, %x0 : {kind}\n linalg.yield %s : {kind}"
    iterators = ["reduction" if d in reduced else "parallel" for d in range(n)]
    text, shapes = generic(sizes, [source, kept], iterators, [kind], [kind], body, dynamic)
    rng = np.random.default_rng(0)
    x, init = (random(rng, s, kind) for s in shapes)
    if op == "arith.mulf":  # so that products stay in range
        x = (1 + x / 32).astype(x.dtype)
    found = kernel(text)(x, init)
    reduce, combine = REDUCTIONS[op]
    moved = np.transpose(widen(x), [source.index(d) for d in range(n)])
    if x.dtype.kind == "i":
        values = combine.reduce(moved, axis=reduced, dtype=x.dtype) if op == "arith.addi" else None
        if values is None:
            values = moved
            for axis in sorted(reduced, reverse=True):
                values = combine.reduce(values, axis=axis)
        assert (found == combine(values, init)).all(), text
    else:
        expected = combine(reduce(moved, axis=reduced), widen(init))
        assert relative_error(found, expected) < 20 * TOLERANCE[kind], text


@examples(25)
@given(
    st.lists(st.sampled_from([1, 2, 3, 5, 16, 17, 40]), min_size=1, max_size=3),
    st.sampled_from(["f32", "f64", "f16", "bf16"]),
    st.booleans(),
    st.data(),
)
def test_element_wise(sizes, kind, dynamic, data):
    """Operands that are transposed, broadcast, boolean; an index; two results in different layouts."""
    n = len(sizes)
    order = st.permutations(range(n))
    maps = [tuple(data.draw(order)) for _ in range(4)]
    row = tuple(data.draw(order))[: data.draw(st.integers(0, n))]
    last = data.draw(st.integers(0, n - 1))
    body = f"""%i = linalg.index {last} : index
      %c = arith.constant 3 : index
      %less = arith.cmpi slt, %i, %c : index
      %s = arith.addf %x0, %x1 : {kind}
      %t = arith.select %less, %s, %x0 : {kind}
      %u = arith.select %x2, %t, %x1 : {kind}
      %h = arith.constant 0.5 : {kind}
      %v = arith.mulf %u, %h : {kind}
      linalg.yield %u, %v : {kind}, {kind}"""
    spec = [maps[0], row, maps[1], maps[2], maps[3]]
    text, shapes = generic(sizes, spec, ["parallel"] * n, [kind, kind, "i1"], [kind, kind], body, dynamic)
    (x, y, b, *_), found = run(text, shapes, [kind, kind, "i1", kind, kind])

    def at_loops(a, map_):
        a = np.transpose(widen(a) if a.dtype != np.bool_ else a, [map_.index(d) for d in sorted(map_)])
        return a.reshape([sizes[d] if d in map_ else 1 for d in range(n)])

    x, y, b = at_loops(x, maps[0]), at_loops(y, row), at_loops(b, maps[1])
    index = np.arange(sizes[last]).reshape([-1 if d == last else 1 for d in range(n)])
    u = np.where(b, np.where(index < 3, x + y, x), y)
    u = np.broadcast_to(u, sizes)
    for result, expected, map_ in zip(found, (u, u / 2), maps[2:], strict=True):
        assert relative_error(result, np.transpose(expected, map_)) < TOLERANCE[kind], text


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 16), (7, 33), (64, 128)])
@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
def test_two_results_one_reduced(rows, columns, kind):
    """What online softmax needs: exp(x − m) and its row sums, in one pass."""
    body = f"""%d = arith.subf %x0, %x1 : {kind}
      %e = math.exp %d : {kind}
      %s = arith.addf %x3, %e : {kind}
      linalg.yield %e, %s : {kind}, {kind}"""
    maps = [(0, 1), (0,), (0, 1), (0,)]
    text, shapes = generic((rows, columns), maps, ["parallel", "reduction"], [kind] * 2, [kind] * 2, body)
    (x, m, _, s), (e, total) = run(text, shapes, [kind] * 4)
    expected = np.exp(widen(x) - widen(m)[:, None])
    assert relative_error(e, expected) < TOLERANCE[kind]
    assert relative_error(total, expected.sum(1) + widen(s)) < TOLERANCE[kind]


def test_argmax_is_no_plain_reduction():
    """A body that uses its accumulators freely: lanes run along a parallel loop, or there are none."""
    body = """%j = linalg.index 1 : index
      %k = arith.index_cast %j : index to i64
      %g = arith.cmpf ogt, %x0, %x1 : f32
      %v = arith.select %g, %x0, %x1 : f32
      %p = arith.select %g, %k, %x2 : i64
      linalg.yield %v, %p : f32, i64"""
    for rows, columns in itertools.product((1, 3, 20), (1, 5, 19)):
        text, _ = generic(
            (rows, columns), [(0, 1), (0,), (0,)], ["parallel", "reduction"], ["f32"], ["f32", "i64"], body
        )
        rng = np.random.default_rng(1)
        x = rng.standard_normal((rows, columns)).astype(np.float32)
        low = np.full(rows, -np.inf, np.float32)
        value, position = kernel(text)(x, low, np.zeros(rows, np.int64))
        assert (position == x.argmax(1)).all() and (value == x.max(1)).all()


def test_map_that_is_no_projection():
    """A convolution-like map goes to scalar loops, with the right result."""
    text = """
func.func @main(%x: tensor<20xf32>, %w: tensor<5xf32>, %o: tensor<16xf32>) -> tensor<16xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i + k)>, affine_map<(i, k) -> (k)>,
      affine_map<(i, k) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %w : tensor<20xf32>, tensor<5xf32>) outs(%o : tensor<16xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %c, %p : f32
      linalg.yield %s : f32
  } -> tensor<16xf32>
  return %r : tensor<16xf32>
}"""
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal(20).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    found = kernel(text)(x, w, np.zeros(16, np.float32))
    assert relative_error(found, np.correlate(x.astype(float), w.astype(float))) < 1e-6


@pytest.mark.sampled(4)
@pytest.mark.parametrize("start", [0, 37, -37, 1 << 30, (1 << 31) + 5, -(1 << 31) - 5, 1 << 40, -(1 << 40)])
@pytest.mark.parametrize("vector_bytes", [64, 32])
def test_positions_are_compared_wherever_they_start(start, vector_bytes):
    """In 32 bits, which must not show."""
    names = {"slt": "less", "sle": "less_equal", "sgt": "greater", "sge": "greater_equal", "eq": "equal"}
    compared = "\n".join(
        f"%c{n} = arith.cmpi {p}, {'%d, %limit' if n % 2 else '%limit, %d'} : index\n"
        f"%b{n} = arith.select %c{n}, %n{n}, %zero : i32\n%s{n + 1} = arith.addi %s{n}, %b{n} : i32"
        for n, p in enumerate(names)
    )
    constants = "\n".join(f"%n{n} = arith.constant {1 << n} : i32" for n in range(len(names)))
    text = f"""
func.func @main(%start: index, %a: tensor<7x50xi32>) -> tensor<7x50xi32> {{
  {constants}
  %zero = arith.constant 0 : i32
  %limit = arith.constant 20 : index
  %two = arith.constant 2 : index
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      outs(%a : tensor<7x50xi32>) {{
    ^bb0(%s0: i32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %twice = arith.muli %i, %two : index
      %e = arith.subi %j, %twice : index
      %d = arith.subi %e, %start : index
      {compared}
      linalg.yield %s{len(names)} : i32
  }} -> tensor<7x50xi32>
  return %r : tensor<7x50xi32>
}}"""
    i, j = np.mgrid[0:7, 0:50]
    d = j - 2 * i - start
    expected = sum(
        getattr(np, name)(*((d, 20) if n % 2 else (20, d))).astype(np.int32) << n
        for n, name in enumerate(names.values())
    )
    found = kernel(text, vector_bytes=vector_bytes)(np.int64(start), np.zeros((7, 50), np.int32))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["i64", "i32", "i8"])
@pytest.mark.parametrize("op", ["divsi", "remsi", "divui", "remui", "floordivsi", "ceildivsi", "ceildivui"])
def test_division_ends_no_process(op, kind):
    """In lanes over the end of a row, by zero, and of the least number by −1."""
    body = f"%r = arith.{op} %x0, %x1 : {kind}\n linalg.yield %r : {kind}"
    text, _ = generic((6,), [(0,)] * 3, ["parallel"], [kind] * 2, [kind], body)
    least = np.iinfo(DTYPES[kind]).min
    a, b = (np.array(x, DTYPES[kind]) for x in ([100, 7, 5, 4, 5, least], [2, 3, 8, 2, 0, -1]))
    found = kernel(text)(a, b, np.zeros_like(a))[:4]
    a, b = a[:4], b[:4]
    assert (found == (a % b if "rem" in op else -(-a // b) if "ceil" in op else a // b)).all()
