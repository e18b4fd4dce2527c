"""What is computed on the same rows, by threads that share them: in modules, without a GPU, and thread by thread."""

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module
from attn_opt.transforms.nvidia.kernels import row_body
from attn_opt.transforms.rewriting import ops_in
from crossed import pairwise
from gpu_modules import Launches, run_module
from harness import CONTEXT
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from threads import Memory, Threads

TOLERANCE = {"f32": 1e-5, "f16": 4e-3, "f64": 1e-12}
DTYPES = {"f32": np.float32, "f16": np.float16, "f64": np.float64}


class Graph:
    """Text of a function on %x, of `shape`, and %y, %w, of a row: ops by element and over rows, one after the other."""

    def __init__(self, shape: tuple[int, ...], element: str):
        self.shape, self.element, self.lines = shape, element, []
        self.wide = "f64" if element == "f64" else "f32"
        self.names = "bcdefghij"[: len(shape)]

    def tensor(self, kind: str, element: str = "") -> str:
        sizes = {"whole": self.shape, "rows": self.shape[:-1], "row": self.shape[-1:]}[kind]
        return "tensor<" + "".join(f"{s}x" for s in sizes) + (element or self.wide) + ">"

    def map(self, kind: str) -> str:
        names = {"whole": self.names, "rows": self.names[:-1], "row": self.names[-1:]}[kind]
        return f"affine_map<({', '.join(self.names)}) -> ({', '.join(names)})>"

    def op(
        self, name: str, inputs: dict[str, str], body: str, result: str = "whole", init: float | None = None
    ) -> None:
        """`inputs`: what each is. `body` of %a, %b, …, in the wide type, and %z, what a sum was, gives %r. `init`: of a
        sum over rows."""
        narrow = {n: k.endswith("'") for n, k in inputs.items()}
        kinds = {n: k.rstrip("'") for n, k in inputs.items()}
        types = [self.tensor(k, self.element if narrow[n] else "") for n, k in kinds.items()]
        last = result.rstrip("'")
        out = self.element if result.endswith("'") else self.wide
        loops = ["parallel"] * (len(self.shape) - 1) + ["reduction" if init is not None else "parallel"]
        quoted = ", ".join(f'"{k}"' for k in loops)
        maps = ", ".join(self.map(k) for k in (*kinds.values(), last))
        arguments, lines = [], []
        for letter, n in zip("abcd", kinds, strict=False):
            is_cast = narrow[n] and self.element != self.wide
            arguments.append(f"%{letter}{'0' if is_cast else ''}: {self.element if narrow[n] else self.wide}")
            if is_cast:
                lines.append(f"%{letter} = arith.extf %{letter}0 : {self.element} to {self.wide}")
        lines.append(body.replace("T", self.wide))
        value = "%r"
        if out != self.wide:
            lines.append(f"%r1 = arith.truncf %r : {self.wide} to {out}")
            value = "%r1"
        self.lines.append(f"%{name}e = tensor.empty() : {self.tensor(last, out)}")
        target = f"%{name}e"
        if init is not None:
            self.lines += [
                f"%{name}c = arith.constant {init} : {out}",
                f"%{name}i = linalg.fill ins(%{name}c : {out}) outs(%{name}e : {self.tensor(last, out)}) "
                f"-> {self.tensor(last, out)}",
            ]
            target = f"%{name}i"
        self.lines.append(
            f"%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{quoted}]}} "
            f"ins({', '.join('%' + n for n in kinds)} : {', '.join(types)}) "
            f"outs({target} : {self.tensor(last, out)}) {{\n^bb0({', '.join(arguments)}, %z: {out}):\n  "
            + "\n  ".join(lines)
            + f"\n  linalg.yield {value} : {out}\n}} -> {self.tensor(last, out)}"
        )

    def run(self, *results: str, options: dict | None = None) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The inputs, of normal numbers, and the results."""
        types = [self.tensor(k.rstrip("'"), self.element if k.endswith("'") else "") for _, k in self.pairs(results)]
        narrow = self.element
        text = (
            f"func.func @main(%x: {self.tensor('whole', narrow)}, %y: {self.tensor('whole', narrow)}, "
            f"%w: {self.tensor('row', narrow)}) -> ({', '.join(types)}) {{\n"
            + "\n".join(self.lines)
            + f"\nreturn {', '.join('%' + n for n, _ in self.pairs(results))} : {', '.join(types)}\n}}"
        )
        rng = np.random.default_rng(0)
        shapes = (self.shape, self.shape, self.shape[-1:])
        inputs = [rng.normal(size=s).astype(DTYPES[narrow]).astype(np.float64) for s in shapes]
        return inputs, run_module(text, inputs, **(options or {}))

    @staticmethod
    def pairs(results: tuple[str, ...]) -> list[tuple[str, str]]:
        return [tuple(r.split(": ")) for r in results]


def norm(graph: Graph) -> None:
    """Of x + y, which is a result, too: minus its mean, over the root of its variance, times w."""
    n = graph.shape[-1]
    graph.op("t", {"x": "whole'", "y": "whole'"}, "%r = arith.addf %a, %b : T", "whole'")
    graph.op("s", {"t": "whole'"}, "%r = arith.addf %z, %a : T", "rows", 0.0)
    graph.op(
        "d",
        {"t": "whole'", "s": "rows"},
        f"%n = arith.constant {n}.0 : T\n%m = arith.divf %b, %n : T\n%r = arith.subf %a, %m : T",
    )
    graph.op("v", {"d": "whole"}, "%q = arith.mulf %a, %a : T\n%r = arith.addf %z, %q : T", "rows", 0.0)
    graph.op(
        "o",
        {"d": "whole", "v": "rows", "w": "row'"},
        f"%n = arith.constant {n}.0 : T\n%e = arith.constant 1.0e-3 : T\n%m = arith.divf %b, %n : T\n"
        "%k = arith.addf %m, %e : T\n%u = math.rsqrt %k : T\n%p = arith.mulf %a, %u : T\n%r = arith.mulf %p, %c : T",
        "whole'",
    )


def normed(x, y, w, element):
    total = (x + y).astype(DTYPES[element]).astype(np.float64)
    d = total - total.mean(-1, keepdims=True)
    return total, d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-3) * w


def softmax(graph: Graph) -> None:
    """The probabilities, and the logarithm of the sum of exponentials."""
    low = {"f16": "0xFF800000", "f32": "0xFF800000", "f64": "0xFFF0000000000000"}[graph.element]
    graph.op("m", {"x": "whole'"}, "%r = arith.maximumf %z, %a : T", "rows", low)
    graph.op("p", {"x": "whole'", "m": "rows"}, "%d = arith.subf %a, %b : T\n%r = math.exp %d : T")
    graph.op("s", {"p": "whole"}, "%r = arith.addf %z, %a : T", "rows", 0.0)
    graph.op("o", {"p": "whole", "s": "rows"}, "%r = arith.divf %a, %b : T", "whole'")
    maps = f"affine_map<({', '.join(graph.names[:-1])}) -> ({', '.join(graph.names[:-1])})>"
    rows = graph.tensor("rows")
    loops = ", ".join(['"parallel"'] * (len(graph.shape) - 1))
    graph.lines.append(
        f"%le = tensor.empty() : {rows}\n%l = linalg.generic {{indexing_maps = [{', '.join([maps] * 3)}], "
        f"iterator_types = [{loops}]}} ins(%m, %s : {rows}, {rows}) outs(%le : {rows}) {{\n"
        f"^bb0(%a: {graph.wide}, %b: {graph.wide}, %z: {graph.wide}):\n%g = math.log %b : {graph.wide}\n"
        f"%r = arith.addf %a, %g : {graph.wide}\nlinalg.yield %r : {graph.wide}\n}} -> {rows}"
    )


def between_extremes(graph: Graph) -> None:
    """Two sums of the same elements, neither of which reads the other one, and what is made of both."""
    graph.op("l", {"x": "whole'"}, "%r = arith.minimumf %z, %a : T", "rows", "0x7F800000")
    graph.op("h", {"x": "whole'"}, "%r = arith.maximumf %z, %a : T", "rows", "0xFF800000")
    graph.op(
        "o",
        {"x": "whole'", "l": "rows", "h": "rows"},
        "%c1 = arith.constant 1.0e-2 : T\n%d = arith.subf %a, %b : T\n%e = arith.subf %c, %b : T\n"
        "%f = arith.addf %e, %c1 : T\n%r = arith.divf %d, %f : T",
        "whole'",
    )


def close(found, expected, element):
    assert np.abs(found - expected).max() <= TOLERANCE[element] * max(1, np.abs(expected).max())


SHAPES = [(9, 64), (2, 3, 24), (3, 77), (1, 8), (5, 3), (2, 2400), (1, 1, 1040), (3, 1025)]


@pytest.mark.parametrize("any_strides", [False, True], ids=["dense", "any"])
@pytest.mark.parametrize("element", ["f16", "f32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norms(shape, element, any_strides):
    graph = Graph(shape, element)
    norm(graph)
    inputs, (total, found) = graph.run("t: whole'", "o: whole'", options={"any_strides": any_strides})
    expected = normed(*inputs, element)
    np.testing.assert_array_equal(total, expected[0])
    close(found, expected[1], element)
    assert Launches.kernels == ["main_rows_0"]


@pytest.mark.parametrize("element", ["f16", "f32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmaxes(shape, element):
    graph = Graph(shape, element)
    softmax(graph)
    (x, _, _), (found, log) = graph.run("o: whole'", "l: rows")
    weights = np.exp(x - x.max(-1, keepdims=True))
    close(found, weights / weights.sum(-1, keepdims=True), element)
    close(log, x.max(-1) + np.log(weights.sum(-1)), "f32")
    assert Launches.kernels == ["main_rows_0"]


@pytest.mark.parametrize("element", ["f16", "f32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_beside_one_another(shape, element):
    graph = Graph(shape, element)
    between_extremes(graph)
    (x, _, _), (found, high) = graph.run("o: whole'", "h: rows")
    low = x.min(-1, keepdims=True)
    close(found, (x - low) / (x.max(-1, keepdims=True) - low + 1e-2), element)
    np.testing.assert_array_equal(high, x.max(-1))
    assert Launches.kernels == ["main_rows_0"]


@pytest.mark.parametrize(
    ("columns", "threads", "element"), pairwise([512, 1024, 1030, 1600, 2047], [32, 64], ["f16", "f32"])
)
def test_longer_rows_than_threads_keep(columns, threads, element, monkeypatch):
    """Pieces come in loops, by two, and what is left behind them: of as many as there are, of fewer, of none."""
    monkeypatch.setattr(row_body, "MOST_THREADS", threads)
    monkeypatch.setattr(row_body, "MOST_PIECES", 2)
    for make in (norm, softmax):
        graph = Graph((2, columns), element)
        make(graph)
        inputs, found = graph.run("t: whole'", "o: whole'") if make is norm else graph.run("o: whole'", "l: rows")
        weights = np.exp(inputs[0] - inputs[0].max(-1, keepdims=True))
        sums = weights.sum(-1)
        right = [weights / sums[:, None], np.log(sums) + inputs[0].max(-1)]
        for one, expected in zip(found, normed(*inputs, element) if make is norm else right, strict=True):
            close(one, expected, element)
        assert Launches.kernels == ["main_rows_0"]


@pytest.mark.slow
@examples(40)
@given(
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    columns=st.one_of(st.integers(2, 300), st.sampled_from([512, 1000, 4096])),
    element=st.sampled_from(["f16", "f32"]),
    multiprocessors=st.sampled_from([1, 132]),
)
def test_rows_of_any_shape(rows, columns, element, multiprocessors):
    graph = Graph((*rows, columns), element)
    norm(graph)
    inputs, (_, found) = graph.run("t: whole'", "o: whole'", options={"multiprocessors": multiprocessors})
    close(found, normed(*inputs, element)[1], element)
    assert Launches.kernels == ["main_rows_0"]


@pytest.mark.parametrize("shape", [(5, 0), (0, 64)], ids=str)
def test_no_elements(shape):
    """Rows of none are left to threads of their own, which have nothing to do; of no rows no block computes any."""
    graph = Graph(shape, "f32")
    softmax(graph)
    _, (found, _) = graph.run("o: whole'", "l: rows")
    assert found.shape == shape


def test_sums_of_f64_are_left_to_threads_of_their_own():
    """They are not put together by threads; the results are the same."""
    graph = Graph((5, 64), "f64")
    norm(graph)
    inputs, (_, found) = graph.run("t: whole'", "o: whole'")
    close(found, normed(*inputs, "f64")[1], "f64")
    assert "main_rows_0" not in Launches.kernels


STEPS = """
func.func @main(%x: tensor<16x1024xf32>) -> tensor<{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %part = tensor.extract_slice %x[{offsets}] [{n}, {m}] [{steps}] : tensor<16x1024xf32> to tensor<{n}x{m}xf32>
  %e = tensor.empty() : tensor<{n}xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<{n}xf32>) -> tensor<{n}xf32>
  %s = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}} ins(%part : tensor<{n}x{m}xf32>) outs(%zeros : tensor<{n}xf32>) {{
  ^bb0(%a: f32, %old: f32):
    %r = arith.addf %old, %a : f32
    linalg.yield %r : f32
  }} -> tensor<{n}xf32>
  return %s : tensor<{n}xf32>
}}"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    ("rows", "columns"), [(slice(0, 16, 1), slice(1, 1024, 2)), (slice(2, 14, 3), slice(4, 516, 1))]
)
def test_sums_of_every_second_element(rows, columns, arch):
    """Of slices with steps, as gates and values that take turns: they are read where they stand, one by one; with steps
    between rows alone, 16 bytes at once."""
    x = np.random.default_rng(0).standard_normal((16, 1024))
    right = x[rows, columns].sum(1)
    offsets, steps = (f"{a}, {b}" for a, b in ((rows.start, columns.start), (rows.step, columns.step)))
    text = STEPS.format(n=len(right), m=x[rows, columns].shape[1], offsets=offsets, steps=steps)
    (found,) = run_module(text, [x], arch=arch)
    close(found, right, "f32")
    assert Launches.kernels == ["main_elements_0"]


ALL = """
module attributes {{gpu.container_module}} {{
  gpu.module @f_kernels {{
    gpu.func @f(%a: memref<{threads}x{element}, strided<[1]>>, %o: memref<{threads}x{element}, strided<[1]>>) kernel
        attributes {{tile.threads = {threads} : i64}} {{
      %i = gpu.thread_id x
      %x = memref.load %a[%i] : memref<{threads}x{element}, strided<[1]>>
      %s = gpu.all_reduce {kind} %x uniform {{}} {{tile.beside = {beside} : i64}} : ({element}) -> {element}
      memref.store %s, %o[%i] : memref<{threads}x{element}, strided<[1]>>
      gpu.return
    }}
  }}
}}
"""


@pytest.mark.parametrize(
    ("kind", "element"), [("add", "f32"), ("maximumf", "f32"), ("mul", "f32"), ("maximumf", "f16")]
)
@pytest.mark.parametrize(
    ("threads", "beside"), [(64, 1), (128, 1), (512, 1), (1024, 1), (64, 4), (512, 2), (512, 4), (1024, 8), (128, 32)]
)
def test_what_all_threads_of_a_block_have(threads, beside, kind, element):
    """Each thread gets what all have, or every so many-th, by way of shared memory, of which there is a word for each
    warp."""
    rng = np.random.default_rng(0)
    array = (1 + rng.uniform(-0.01, 0.01, threads)).astype(DTYPES[element])
    target = np.zeros(threads, DTYPES[element])
    shared = Memory(np.zeros(4 * beside * threads // 32, np.uint8))
    memories = [shared, Memory(array.view(np.uint8), 1 << 20), Memory(target.view(np.uint8), 1 << 30)]
    with CONTEXT:
        text = ALL.format(threads=threads, kind=kind, element=element, beside=beside)
        module = parse_module(text, "test.mlir", CONTEXT)
        pass_manager.run(["tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        Threads(threads, memories, in_block=threads).call(function, [1 << 20, 1 << 30])
    combine = {"add": np.sum, "maximumf": np.max, "mul": np.prod}[kind]
    expected = combine(array.astype(np.float64).reshape(-1, beside), 0)
    np.testing.assert_allclose(target, np.tile(expected, threads // beside), rtol=1e-5)
    assert np.all(shared.written == 1)
