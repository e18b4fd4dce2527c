"""Norms and softmaxes that no attention is around, on the CPU: rows, or columns, that several ops read."""

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference import evaluate
from harness import CONTEXT, kernel, run_passes
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
TOLERANCE = {"f32": 1e-5, "bf16": 2e-2}
TILES = ["drop-results", "drop-units{last=1}", "fuse-elements{all=1}"]


class Graph:
    """The text of a function of tensors of one shape, one of whose dimensions is summed up."""

    def __init__(self, sizes, axis, keeps, element, is_open):
        self.sizes, self.axis, self.element, self.is_open = list(sizes), axis, element, is_open
        n = len(sizes)
        loops = [f"d{d}" for d in range(n)]
        of_row = [("0" if d == axis else e) for d, e in enumerate(loops) if d != axis or keeps]
        self.row_sizes = [(1 if d == axis else s) for d, s in enumerate(sizes) if d != axis or keeps]
        domain = ", ".join(loops)
        self.all = f"affine_map<({domain}) -> ({domain})>"
        self.row = f"affine_map<({domain}) -> ({', '.join(of_row)})>"
        self.along = f"affine_map<({domain}) -> ({loops[axis]})>"
        self.kinds = ", ".join(f'"{"reduction" if d == axis else "parallel"}"' for d in range(n))
        rank = len(self.row_sizes)
        own = ", ".join(f"d{d}" for d in range(rank))
        self.own = f"affine_map<({own}) -> ({own})>"
        self.own_kinds = ", ".join(['"parallel"'] * rank)
        self.lines, self.count = [], 0

    def kind(self, sizes, element):
        open_sizes = ("?" if self.is_open and s != 1 else str(s) for s in sizes)
        return f"tensor<{''.join(s + 'x' for s in open_sizes)}{element}>"

    def name(self):
        self.count += 1
        return f"%v{self.count}"

    def empty(self, sizes, element):
        """A tensor of such sizes; those that are open are the first argument's."""
        dynamic = []
        own = [d for d in range(len(self.sizes)) if d != self.axis or len(sizes) == len(self.sizes)]
        for d, size in zip(own, sizes, strict=True):
            if self.is_open and size != 1:
                number, index = self.name(), self.name()
                self.lines += [f"{index} = arith.constant {d} : index"]
                self.lines += [f"{number} = tensor.dim %x, {index} : {self.kind(self.sizes, self.element)}"]
                dynamic.append(number)
        value = self.name()
        self.lines.append(f"{value} = tensor.empty({', '.join(dynamic)}) : {self.kind(sizes, element)}")
        return value

    def generic(self, maps, kinds, inputs, outputs, body):
        """`inputs`: values and their types; `outputs` too; `body` gets the names of the elements."""
        value = self.name()
        elements = [f"%e{i}" for i in range(len(inputs) + len(outputs))]
        types = [kind.rpartition("x")[2].rstrip(">") for _, kind in [*inputs, *outputs]]
        arguments = ", ".join(f"{e}: {t}" for e, t in zip(elements, types, strict=True))
        ins = f"{', '.join(v for v, _ in inputs)} : {', '.join(k for _, k in inputs)}"
        outs = f"{', '.join(v for v, _ in outputs)} : {', '.join(k for _, k in outputs)}"
        results = ", ".join(k for _, k in outputs)
        many = f":{len(outputs)}" if len(outputs) > 1 else ""
        self.lines.append(
            f"{value}{many} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}} "
            f"ins({ins}) outs({outs}) {{\n^bb0({arguments}):\n{body(*elements)}\n}} -> ({results})"
        )
        return value

    def map(self, inputs, body, element="f32"):
        """Element by element; of inputs with a row's value each, or one along a row, maps are given."""
        kinds = ", ".join(['"parallel"'] * len(self.sizes))
        maps = [m for _, _, m in inputs]
        output = (self.empty(self.sizes, element), self.kind(self.sizes, element))
        values = [(v, k) for v, k, _ in inputs]
        return self.generic([*maps, self.all], kinds, values, [output], body), output[1], self.all

    def sum(self, x):
        """Of each row."""
        begin, init = self.name(), self.name()
        kind = self.kind(self.row_sizes, "f32")
        empty = self.empty(self.row_sizes, "f32")
        self.lines.append(f"{begin} = arith.constant 0.0 : f32")
        self.lines.append(f"{init} = linalg.fill ins({begin} : f32) outs({empty} : {kind}) -> {kind}")
        value = self.generic([self.all, self.row], self.kinds, [x[:2]], [(init, kind)], one("addf", "%e0, %e1"))
        return value, kind, self.row

    def of_rows(self, x, body):
        """Of a value of each row another one."""
        kind = self.kind(self.row_sizes, "f32")
        output = (self.empty(self.row_sizes, "f32"), kind)
        return self.generic([self.own, self.own], self.own_kinds, [x[:2]], [output], body), kind, self.row

    def function(self, arguments, results):
        named = ", ".join(f"{v}: {k}" for v, k, _ in arguments)
        kinds = ", ".join(k for _, k, _ in results)
        body = [*self.lines, f"return {', '.join(v for v, *_ in results)} : {kinds}"]
        return f"func.func @main({named}) -> ({kinds}) {{\n" + "\n".join(body) + "\n}"


def one(name, operands):
    """The body of one op."""
    return lambda *_: f"%s = arith.{name} {operands} : f32\nlinalg.yield %s : f32"


def two(name):
    return one(name, "%e0, %e1")


def norm(g: Graph):
    """x + y, and its norm, times the weights of a row's elements; rounded to the element type."""
    whole, along = g.kind(g.sizes, g.element), g.kind([g.sizes[g.axis]], "f32")
    x, y, w = ("%x", whole, g.all), ("%y", whole, g.all), ("%w", along, g.along)

    def widened(a):
        return (a, "") if g.element == "f32" else (f"{a}w", f"{a}w = arith.extf {a} : {g.element} to f32\n")

    def added(a, b, o):
        (p, before), (q, then) = widened(a), widened(b)
        return f"{before}{then}%s = arith.addf {p}, {q} : f32\nlinalg.yield %s : f32"

    def rounded(c, r, v, o):
        end = "linalg.yield %p : f32"
        if g.element != "f32":
            end = f"%q = arith.truncf %p : f32 to {g.element}\nlinalg.yield %q : {g.element}"
        return f"%s = arith.mulf {c}, {r} : f32\n%p = arith.mulf %s, {v} : f32\n{end}"

    a = g.map([x, y], added)
    n = f"%n = arith.constant {float(g.sizes[g.axis])} : f32\n"
    mean = g.of_rows(g.sum(a), lambda s, o: f"{n}%m = arith.divf {s}, %n : f32\nlinalg.yield %m : f32")
    c = g.map([a, mean], two("subf"))
    q = g.sum(g.map([c, c], two("mulf")))
    root = (
        "%v = arith.divf {0}, %n : f32\n%t = arith.addf %v, %eps : f32\n%r = math.rsqrt %t : f32\nlinalg.yield %r : f32"
    )
    r = g.of_rows(q, lambda s, o: f"{n}%eps = arith.constant 1.0e-5 : f32\n{root.format(s)}")
    out = g.map([c, r, w], rounded, g.element)
    return g.function([x, y, w], [out, a, r])


def softmax(g: Graph):
    """Of x + y, with a maximum that comes with its place, as torch writes it."""
    whole = g.kind(g.sizes, "f32")
    x, y = ("%x", whole, g.all), ("%y", whole, g.all)
    a = g.map([x, y], two("addf"))
    kind, places = g.kind(g.row_sizes, "f32"), g.kind(g.row_sizes, "i64")
    empties = [g.empty(g.row_sizes, e) for e in ("f32", "i64")]
    g.lines += ["%lowest = arith.constant 0xFF800000 : f32", "%first = arith.constant 0 : i64"]
    g.lines += [f"%m0 = linalg.fill ins(%lowest : f32) outs({empties[0]} : {kind}) -> {kind}"]
    g.lines += [f"%i0 = linalg.fill ins(%first : i64) outs({empties[1]} : {places}) -> {places}"]

    def largest(v, m, i):
        return (
            f"%at = linalg.index {g.axis} : index\n%j = arith.index_cast %at : index to i64\n"
            f"%s = arith.maximumf {v}, {m} : f32\n%gt = arith.cmpf ogt, {v}, {m} : f32\n"
            f"%k = arith.select %gt, %j, {i} : i64\nlinalg.yield %s, %k : f32, i64"
        )

    m = g.generic([g.all, g.row, g.row], g.kinds, [a[:2]], [("%m0", kind), ("%i0", places)], largest)
    shifted = g.map([a, (f"{m}#0", kind, g.row)], two("subf"))
    p = g.map([shifted], lambda v, o: f"%s = math.exp {v} : f32\nlinalg.yield %s : f32")
    s = g.sum(p)
    return g.function([x, y], [g.map([p, s], two("divf")), s])


def arrays(g: Graph, text: str):
    rng = np.random.default_rng(len(text))
    shapes = [g.sizes, g.sizes, [g.sizes[g.axis]]][: 3 if "%w" in text else 2]
    kinds = [g.element, g.element, "f32"]
    found = [rng.standard_normal(s).astype(DTYPES[k]) for s, k in zip(shapes, kinds, strict=False)]
    exact = evaluate(parse_module(text, "rows.mlir", CONTEXT), [a.astype(np.float64) for a in found])
    return found, exact


def check(found, exact, element):
    assert len(found) == len(exact)
    for one, right in zip(found, exact, strict=True):
        error = np.linalg.norm(np.asarray(one, np.float64) - right) / max(np.linalg.norm(right), 1e-6)
        assert error < TOLERANCE[element]


@pytest.mark.parametrize("graph", [norm, softmax])
@given(
    sizes=st.lists(st.integers(1, 21), min_size=2, max_size=3),
    axis=st.integers(0, 2),
    keeps=st.booleans(),
    is_open=st.booleans(),
    element=st.sampled_from(["f32", "bf16"]),
    tile=st.sampled_from([(4, 1), (16, 5), (64, 32), (1000, 128)]),
)
@examples(25)
def test_rows_by_tiles(graph, sizes, axis, keeps, is_open, element, tile):
    g = Graph(sizes, axis % len(sizes), keeps, "f32" if graph is softmax else element, is_open)
    text = graph(g)
    inputs, exact = arrays(g, text)
    task, at_a_time = tile
    found = kernel(text, [*TILES, f"fuse-rows{{task={task} tile={at_a_time}}}"])(*inputs)
    check(found, exact, g.element)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("graph", [norm, softmax])
def test_rows_as_compiled(graph, threads, axis):
    """Large enough to be taken row by row."""
    g = Graph((3, 130, 257), axis, True, "f32", False)
    text = graph(g)
    inputs, exact = arrays(g, text)
    compiled = compile(text, threads=threads)
    check(compiled(*inputs), exact, "f32")


@pytest.mark.parametrize("sizes", [(5, 0), (0, 7)])
@pytest.mark.parametrize("graph", [norm, softmax])
def test_no_elements(graph, sizes):
    text = graph(Graph(sizes, 1, True, "f32", False))
    arguments = [np.zeros(s, np.float32) for s in (sizes, sizes, sizes[1:])][: 3 if graph is norm else 2]
    assert compile(text)(*arguments)[0].shape == sizes


BETWEEN = """
#all = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @main(%x: tensor<{m}x{n}xf32>, %w: tensor<{n}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{m}x{n}xf32>
  %r = tensor.empty() : tensor<{m}xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%r : tensor<{m}xf32>) -> tensor<{m}xf32>
  %s = linalg.generic {{indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<{m}x{n}xf32>) outs(%zeros : tensor<{m}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %q = arith.mulf %a, %a : f32
    %t = arith.addf %q, %o : f32
    linalg.yield %t : f32
  }} -> tensor<{m}xf32>
  %y = linalg.generic {{indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %s : tensor<{m}x{n}xf32>, tensor<{m}xf32>) outs(%e : tensor<{m}x{n}xf32>) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.divf %a, %b : f32
    linalg.yield %t : f32
  }} -> tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %p = linalg.matmul ins(%y, %w : tensor<{m}x{n}xf32>, tensor<{n}x{n}xf32>)
      outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %z = linalg.generic {{indexing_maps = [#all, #all, #row, #all], iterator_types = ["parallel", "parallel"]}}
      ins(%p, %y, %s : tensor<{m}x{n}xf32>, tensor<{m}x{n}xf32>, tensor<{m}xf32>)
      outs(%e : tensor<{m}x{n}xf32>) {{
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %t = arith.addf %a, %b : f32
    %u = arith.mulf %t, %c : f32
    linalg.yield %u : f32
  }} -> tensor<{m}x{n}xf32>
  return %z : tensor<{m}x{n}xf32>
}}
"""


@given(m=st.integers(2, 30), n=st.integers(1, 30))
@examples(8)
def test_what_depends_on_rows_through_a_product_comes_after_it(m, n):
    text = BETWEEN.format(m=m, n=n)
    rng = np.random.default_rng(m)
    x, w = rng.standard_normal((m, n)).astype(np.float32), rng.standard_normal((n, n)).astype(np.float32)
    (exact,) = evaluate(parse_module(text, "between.mlir", CONTEXT), [a.astype(np.float64) for a in (x, w)])
    check([kernel(text, ["fuse-rows{task=4 tile=2}"])(x, w)], [exact], "f32")


def test_tiles_have_what_they_need():
    """All ops of a norm are in one loop: none reads a row again from memory."""
    text = norm(Graph((64, 33), 1, True, "f32", False))
    with CONTEXT:
        module = parse_module(text, "norm.mlir", CONTEXT)
        run_passes([*TILES, "fuse-rows{task=66 tile=33}"], module)
        outside = [op.operation.name for op in module.body.operations[0].body.blocks[0].operations]
    assert "linalg.generic" not in outside and outside.count("scf.for") == 1
