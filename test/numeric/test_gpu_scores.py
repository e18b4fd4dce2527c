"""Functions of scores on an NVIDIA GPU against float64, one a batch entry of a kernel. Without a GPU only compiled."""

import math
import re

import numpy as np
import pytest
from attention_graph import Attention
from attn_opt.compiler import compile
from attn_opt.compiler.runtime import cuda_driver, ptx
from harness import crossed

M, K, D = 70, 100, 32
I, J = np.indices((M, K))

# Where a function is defined: what is made of the score %x, and the same in numpy.
ANY = "%a = arith.addf %x, %zero : f32", lambda x: x
POSITIVE = "%m = math.absf %x : f32\n%a = arith.addf %m, %half : f32", lambda x: abs(x) + 0.5
ABOVE_1 = "%m = math.absf %x : f32\n%a = arith.addf %m, %one : f32", lambda x: abs(x) + 1
WITHIN_1 = (
    "%m = math.absf %x : f32\n%n = arith.addf %m, %one : f32\n%a = arith.divf %x, %n : f32",
    lambda x: x / (1 + abs(x)),
)


def scores(text, function, domain=ANY):
    """%y of %a, and the same in numpy."""
    return f"{domain[0]}\n{text}", lambda x: function(domain[1](x))


def unary(name, function, domain=ANY):
    return scores(f"%y = math.{name} %a : f32", function, domain)


def integers(text, numbers):
    """%z : i32 of i and j and seven over 16, added to the scores; `numbers`: the same in numpy."""
    first = "%i = arith.index_cast %row : index to i32\n%j = arith.index_cast %column : index to i32"
    first += "\n%seven = arith.constant 7 : i32\n%d = arith.subi %i, %j : i32"
    last = "%f = arith.sitofp %z : i32 to f32\n%c = arith.constant 16.0 : f32\n%g = arith.divf %f, %c : f32"
    return f"{first}\n{text}\n{last}\n%y = arith.addf %x, %g : f32", lambda x: x + numbers / 16


REMAINDER = """%c = arith.constant 0.75 : f32
%r = arith.remf %a, %c : f32
%s = math.sin %r : f32
%t = arith.mulf %s, %s : f32
%u = arith.mulf %r, %r : f32
%v = arith.constant 0.5625 : f32
%w = arith.subf %v, %u : f32
%y = arith.mulf %w, %t : f32"""  # 0 where the remainder jumps
PLACES = """%i = arith.index_cast %row : index to i32
%j = arith.index_cast %column : index to i32
%d = arith.muli %i, %j : i32
%e = arith.sitofp %d : i32 to f32
%s = math.sin %e : f32
%h = arith.mulf %e, %half : f32
%r = math.roundeven %h : f32
%t = arith.subf %r, %h : f32
%u = arith.addf %s, %t : f32
%y = arith.addf %u, %x : f32"""
FINITE = """%c = arith.constant 0x7FF0000000000000 : f64
%d = arith.extf %x : f32 to f64
%e = arith.cmpf une, %d, %c : f64
%f = math.isfinite %x : f32
%g = arith.andi %e, %f : i1
%y = arith.select %g, %x, %zero : f32"""
erf = np.vectorize(math.erf)

GROUPS = {
    "exponentials": {
        "exp": unary("exp", np.exp, WITHIN_1),
        "exp2": unary("exp2", np.exp2, WITHIN_1),
        "expm1": unary("expm1", np.expm1, WITHIN_1),
        "log": unary("log", np.log, POSITIVE),
        "log2": unary("log2", np.log2, POSITIVE),
        "log10": unary("log10", np.log10, POSITIVE),
        "log1p": unary("log1p", np.log1p, POSITIVE),
        "tanh": unary("tanh", np.tanh),
        "sinh": unary("sinh", np.sinh, WITHIN_1),
        "cosh": unary("cosh", np.cosh, WITHIN_1),
        "asinh": unary("asinh", np.arcsinh),
        "acosh": unary("acosh", np.arccosh, ABOVE_1),
        "atanh": unary("atanh", np.arctanh, WITHIN_1),
        "erf": unary("erf", erf),
        "erfc": unary("erfc", lambda x: 1 - erf(x)),
    },
    "angles": {
        "sin": unary("sin", np.sin),
        "cos": unary("cos", np.cos),
        "tan": unary("tan", np.tan, WITHIN_1),
        "atan": unary("atan", np.arctan),
        "asin": unary("asin", np.arcsin, WITHIN_1),
        "acos": unary("acos", np.arccos, WITHIN_1),
        "atan2": scores("%y = math.atan2 %a, %half : f32", lambda x: np.arctan2(x, 0.5)),
        "of places": (PLACES, lambda x: x + np.sin(I * J) + np.rint(I * J / 2) - I * J / 2),
    },
    "powers": {
        "square": scores("%c = arith.constant 2.0 : f32\n%y = math.powf %a, %c : f32", lambda x: x**2),
        "cube": scores("%c = arith.constant 3 : i32\n%y = math.fpowi %a, %c : f32, i32", lambda x: x**3),
        "inverse": scores("%c = arith.constant -1.0 : f32\n%y = math.powf %a, %c : f32", lambda x: 1 / x, POSITIVE),
        "root": unary("sqrt", np.sqrt, POSITIVE),
        "inverse root": unary("rsqrt", lambda x: x**-0.5, POSITIVE),
        "third root": unary("cbrt", np.cbrt, POSITIVE),
        "any power": scores("%y = math.powf %a, %half : f32", lambda x: x**0.5, POSITIVE),
        "its own power": scores("%y = math.powf %a, %a : f32", lambda x: x**x, POSITIVE),
        "of two": scores("%c = arith.constant 2.0 : f32\n%y = math.powf %c, %a : f32", np.exp2),
        "remainder": scores(REMAINDER, lambda x: (r := np.fmod(x, 0.75)) * 0 + (0.5625 - r * r) * np.sin(r) ** 2),
    },
    "integers": {
        "distance": integers("%z = math.absi %d : i32", abs(I - J)),
        "blocks": integers("%z = arith.floordivsi %d, %seven : i32", (I - J) // 7),
        "blocks up": integers("%z = arith.ceildivsi %d, %seven : i32", -((J - I) // 7)),
        "rest": integers("%z = arith.remsi %d, %seven : i32", np.fmod(I - J, 7)),
        "bits": integers("%e = arith.xori %i, %j : i32\n%z = math.ctpop %e : i32", np.bitwise_count(I ^ J)),
        "square": integers(
            "%e = math.ipowi %d, %seven : i32\n%f0 = math.absi %e : i32\n%z = math.ctlz %f0 : i32",
            np.array([32 - int(n).bit_length() for n in np.abs((I - J).astype(np.int32) ** np.int32(7)).flat]).reshape(
                M, K
            ),
        ),
        "finite": (FINITE, lambda x: x),
    },
}


def text(functions) -> str:
    """An attention whose batch entry n applies the n-th function to its scores."""
    graph = Attention(M, K, D, D, batch=(len(functions),), layout="nt", modify="scale", element="f32")
    body = ["%batch = linalg.index 0 : index", "%row = linalg.index 1 : index", "%column = linalg.index 2 : index"]
    body += ["%one = arith.constant 1.0 : f32"]
    last = "%zero"
    for n, (code, _) in enumerate(functions):
        own = re.sub(r"%(?!x\b|half\b|zero\b|one\b|row\b|column\b)(\w+)", rf"%\1_{n}", code)
        body += [own, f"%number_{n} = arith.constant {n} : index"]
        body += [f"%is_{n} = arith.cmpi eq, %batch, %number_{n} : index"]
        body += [f"%chosen_{n} = arith.select %is_{n}, %y_{n}, {last} : f32"]
        last = f"%chosen_{n}"
    body += [f"%y = arith.addf {last}, %zero : f32"]
    return graph.text().replace("%y = arith.mulf %x, %half : f32", "\n".join(body))


@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize(("group", "arch"), crossed(list(GROUPS), ["sm_90a", "sm_80"]))
def test_against_float64(group, arch):
    functions = list(GROUPS[group].values())
    kernel = compile(text(functions), target="nvidia", arch=arch, tile_sizes=[1, 64, 0, 16], split_keys=1)
    assembled = ptx.assemble(kernel.ir("ptx"), arch)
    assert assembled is None or assembled.warnings == []
    try:
        here = cuda_driver.device_arch()
    except cuda_driver.CudaError:
        return  # no GPU
    if arch.endswith("a") and here != arch:
        pytest.skip(f"no {arch}")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((len(functions), n, D)).astype(np.float32) for n in (M, K, K))
    q /= np.float32(math.sqrt(D))
    out = np.asarray(kernel(q, k, v))
    wrong = {}
    for name, (_, function), *one in zip(GROUPS[group], functions, q, k, v, out, strict=True):
        queries, keys, values, found = (x.astype(np.float64) for x in one)
        s = function(queries @ keys.T)
        p = np.exp(s - s.max(axis=1, keepdims=True))
        expected = p @ values / p.sum(axis=1, keepdims=True)
        error = np.abs(found - expected).max() / np.abs(expected).max()
        if not error < 2e-5:
            wrong[name] = error
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("arch", [pytest.param("sm_90a", marks=pytest.mark.slow), "sm_80"])
def test_every_op_on_every_type_compiles(arch):
    """LLVM ends the process where it has no code for an op."""
    one, two = "%v{n} = {op} %v{m} : {kind}", "%v{n} = {op} %v{m}, %s{kind} : {kind}"
    of_floats = [
        (one, "math", "absf floor ceil trunc round roundeven sqrt exp exp2 expm1 log log2 log1p tanh rsqrt"),
        (two, "math", "copysign"),
        (two, "arith", "addf subf mulf divf maximumf minimumf maxnumf minnumf"),
        (one, "arith", "negf"),
        ("%v{n} = {op} %v{m}, %v{m}, %s{kind} : {kind}", "math", "fma"),
    ]
    of_integers = [
        (one, "math", "absi ctlz cttz ctpop"),
        (two, "arith", "addi subi muli divsi divui remsi remui floordivsi ceildivsi ceildivui andi ori xori"),
        (two, "arith", "shli shrsi shrui minsi minui maxsi maxui"),
        (two, "math", "ipowi"),
        ("%v{n}, %h{n} = {op} %v{m}, %s{kind} : {kind}", "arith", "mulsi_extended mului_extended"),
        ("%v{n}, %h{n} = {op} %v{m}, %s{kind} : {kind}, i1", "arith", "addui_extended"),
    ]
    body, n = ["%v0 = arith.addf %x, %half : f32"], 0

    def add(line: str, **words: str) -> None:
        nonlocal n
        n += 1
        body.append(line.format(n=n, m=n - 1, **words))

    def add_all(ops: list[tuple[str, str, str]], kind: str) -> None:
        for form, dialect, names in ops:
            for name in names.split():
                add(form, op=f"{dialect}.{name}", kind=kind)

    for kind, bits, to, back in (
        ("f64", "i64", "extf", "truncf"),
        ("f16", "i16", "truncf", "extf"),
        ("bf16", "i16", "truncf", "extf"),
    ):
        body.append(f"%s{kind} = arith.{to} %x : f32 to {kind}")
        add("%v{n} = arith.{op} %v{m} : f32 to {kind}", op=to, kind=kind)
        add_all(of_floats, kind)
        add("%v{n} = arith.bitcast %v{m} : {kind} to {bits}", kind=kind, bits=bits)
        add("%v{n} = arith.bitcast %v{m} : {bits} to {kind}", kind=kind, bits=bits)
        add("%v{n} = arith.{op} %v{m} : {kind} to f32", op=back, kind=kind)
    for kind in ("i8", "i16", "i32", "i64"):
        body.append(f"%s{kind} = arith.fptosi %x : f32 to {kind}")
        add("%v{n} = arith.fptoui %v{m} : f32 to {kind}", kind=kind)
        add_all(of_integers, kind)
        add("%v{n} = arith.uitofp %v{m} : {kind} to f32", kind=kind)
    body += [f"%y = arith.addf %v{n}, %half : f32"]
    graph = Attention(M, K, D, D, layout="nt", modify="scale", element="f32")
    code = graph.text().replace("%y = arith.mulf %x, %half : f32", "\n".join(body))
    kernel = compile(code, target="nvidia", arch=arch, tile_sizes=[64, 0, 16], split_keys=1)
    assembled = ptx.assemble(kernel.ir("ptx"), arch)
    assert assembled is None or assembled.warnings == []
