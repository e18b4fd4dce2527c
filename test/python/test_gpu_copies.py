"""Copies to aligned rows, run thread by thread without a GPU: which bytes they read and write."""

import math
import re
import struct

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.transforms.rewriting import ops_in

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
ULT = 6
SOURCE, TARGET = 1 << 20, 1 << 30  # where arrays stand
MASK = 0xFFFFFFFF
INTEGERS = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.minsi": min,
    "arith.select": lambda condition, a, b: a if condition else b,
}
# PTX on words.
WORDS = {
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "max.s32": max,
    "and.b32": lambda a, b: a & b,
    "shl.b32": lambda a, b: a << b,
    "shr.u32": lambda a, b: (a & MASK) >> min(b, 32),
    "setp.gt.s32": lambda a, b: a > b,
    "setp.ne.s32": lambda a, b: a != b,
    "selp.b32": lambda a, b, p: a if p else b,
    "shf.r.wrap.b32": lambda low, high, by: (high << 32 | low) >> (by & 31) & MASK,
}


class Thread:
    """One thread of a kernel. `read` and `write` are memory, by address."""

    def __init__(self, block: int, number: int, read, write):
        self.ids = {"tid": number, "ctaid": block}
        self.read, self.write = read, write
        self.values: dict[ir.Value, int] = {}

    def run(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            inputs = [self.values[v] for v in op.operands]
            if op.name == "scf.if":
                for block_of in op.regions[0 if inputs[0] else 1].blocks:
                    self.run(block_of)
            elif op.name == "scf.for":
                body = op.regions[0].blocks[0]
                for at in range(*inputs):
                    self.values[body.arguments[0]] = at
                    self.run(body)
            elif op.name == "llvm.inline_asm":
                self.assembly(ir.StringAttr(op.attributes["asm_string"]).value, inputs)
            elif op.results:
                self.values[op.results[0]] = self.value(op, inputs)

    def value(self, op: ir.Operation, inputs: list[int]) -> int:
        if op.name == "arith.constant":
            return ir.IntegerAttr(op.attributes["value"]).value
        if op.name in INTEGERS:
            return INTEGERS[op.name](*inputs)
        if op.name == "arith.cmpi":
            unsigned = ir.IntegerAttr(op.attributes["predicate"]).value == ULT
            a, b = (v & MASK if unsigned else v for v in inputs)
            return int(a < b)
        if op.name == "llvm.getelementptr":
            element = ir.TypeAttr(op.attributes["elem_type"]).value
            return inputs[0] + inputs[1] * max(element.width // 8, 1)
        if op.name.startswith("nvvm.read.ptx.sreg"):
            return self.ids[op.name.split(".")[-2]]
        return inputs[1] if op.name == "nvvm.shfl.sync" else inputs[0]  # that of a warp's number; casts

    def assembly(self, text: str, inputs: list[int]) -> None:
        """Statement by statement; registers hold numbers."""
        known = {f"${i}": value for i, value in enumerate(inputs)}

        def get(name: str) -> int:
            name = name.strip()
            return known[name] if name in known else int(name, 0)

        for statement in text.strip("{} ").replace("{ ", "{").split(";"):
            guarded = re.match(r"@p (.*)", statement := statement.strip())
            if guarded and not known["p"]:
                continue
            name, _, rest = (guarded[1] if guarded else statement).partition(" ")
            parts = [part.strip() for part in re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,{}\[\]]+", rest) if part.strip()]
            if name in WORDS:
                known[parts[0]] = WORDS[name](*map(get, parts[1:]))
            elif name.startswith("ld.global"):
                base, _, offset = parts[1].strip("[]").partition("+")
                targets = parts[0].strip("{}").split(",")
                width = {"u8": 1, "b16": 2, "b32": 4}[name.rpartition(".")[2]]
                data = self.read(get(base) + int(offset or 0), width * len(targets))
                for i, target in enumerate(targets):
                    known[target.strip()] = int.from_bytes(data[i * width : (i + 1) * width], "little")
            elif name.startswith("mov"):
                values = [get(v) for v in parts[1].strip("{}").split(",")]
                known[parts[0]] = values[0] | values[-1] << 16 if len(values) == 2 else values[0]
            elif name == "prmt.b32":
                both = struct.pack("<II", get(parts[1]), get(parts[2]))
                chosen = [both[get(parts[3]) >> 4 * i & 7] for i in range(4)]
                known[parts[0]] = int.from_bytes(bytes(chosen), "little")
            elif name == "st.global.v4.b32":
                words = [get(v) for v in parts[1].strip("{}").split(",")]
                self.write(get(parts[0].strip("[]")), struct.pack("<4I", *words))
            else:
                assert not name or name == ".reg", statement


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
    written = np.zeros(expected.size, int)

    base = SOURCE + (width if is_open else math.gcd(16, shape[-1] * width))

    def read(address: int, size: int) -> bytes:
        at = address - base
        assert address % size == 0 and 0 <= at <= memory.size - size
        return memory[at : at + size].tobytes()

    def write(address: int, data: bytes) -> None:
        at = address - TARGET
        assert at % 16 == 0 and 0 <= at <= target.size - 16
        target[at : at + 16] = np.frombuffer(data, np.uint8)
        written[at : at + 16] += 1

    context = make_context()
    with context:
        module = parse_module(text, "test.mlir", context)
        pass_manager.run(["outline-pads", "canonicalize", "cse", "tiles-to-nvvm"], module)
        (function,) = ops_in(module.operation, "llvm.func")
        block = function.regions[0].blocks[0]
        open_dims = [0, rank - 1] if is_open else []
        of_source = [base, *((whole if d == 0 else shape)[d] for d in open_dims), *strides[:-1]]
        of_target = [TARGET, *([shape[0], last] if is_open else []), *to[:-1]]
        scalars = [*(shape[d] for d in open_dims), *([start] if cut else [])]
        numbers = [*of_source, *of_target, *scalars]
        lanes = 32 if is_open else last * width // 16
        threads = math.prod(shape[:-1]) * lanes
        for number in range(-(-threads // 256) * 256):
            thread = Thread(*divmod(number, 256), read, write)
            thread.values = dict(zip(block.arguments, numbers, strict=True))
            thread.run(block)
    assert np.array_equal(target, expected.reshape(-1)) and np.all(written == 1)
