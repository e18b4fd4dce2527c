"""Code of kernels for NVIDIA GPUs, run without one: each op of arith, math, scf, llvm and nvvm, and each instruction of
PTX in them, is evaluated for all threads at once, with arrays of a number per thread.

    threads = Threads(256, [Memory(source, start=1 << 20), Memory(target, start=1 << 30)])
    threads.call(function, [1 << 20, 1 << 30, 100])
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from attn_opt.dialects.mlir import ir

F64 = np.float64
DTYPES = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": F64,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
}
WORD = 0xFFFFFFFF
IGNORED = (".reg", "fence.", "bar.", "cp.async.mbarrier.")  # all threads are in step


def dtype_of(value: ir.Value) -> type:
    return dtype_of_element(value.type)


def dtype_of_element(kind: ir.Type) -> type:
    name = str(kind.element_type if isinstance(kind, ir.VectorType) else kind)
    return DTYPES.get(name, np.int64)  # i64, index and addresses


def unsigned(function):
    return lambda *x: function(*(v.view(f"u{v.itemsize}") if v.dtype.kind == "i" else v for v in x))


def truncated(a, b):
    return np.where((a < 0) != (b < 0), -(abs(a) // abs(b)), abs(a) // abs(b))


def nearest_away(x):
    return np.copysign(np.floor(abs(x.astype(F64)) + 0.5), x)


FLOATS_COMPARED = [np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal]  # from 1
INTEGERS_COMPARED = [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal]
PLAIN = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.negf": np.negative,
    "arith.minimumf": np.minimum,
    "arith.maximumf": np.maximum,
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": truncated,
    "arith.remsi": lambda a, b: a - b * truncated(a, b),
    "arith.divui": unsigned(np.floor_divide),
    "arith.remui": unsigned(np.remainder),
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.maxui": unsigned(np.maximum),
    "arith.minui": unsigned(np.minimum),
    "arith.shli": np.left_shift,
    "arith.shrui": unsigned(np.right_shift),
    "arith.select": np.where,
    "arith.extui": unsigned(np.asarray),
    "math.absf": np.abs,
    "math.absi": np.abs,
    "math.copysign": np.copysign,
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "math.trunc": np.trunc,
    "math.round": nearest_away,
    "math.roundeven": np.rint,
    "math.sqrt": np.sqrt,
    "math.ctpop": unsigned(np.bitwise_count),
    "math.fma": lambda a, b, c: a.astype(np.longdouble) * b + c,
}
CASTS = (
    *(f"arith.{name}" for name in ("sitofp", "fptosi", "extf", "truncf", "extsi", "trunci")),
    "llvm.ptrtoint",
    "llvm.inttoptr",
)


def word(x):
    """The bits of a register of 32 bits, as a number."""
    return np.asarray(x).astype(np.int64) & WORD


def signed(x):
    return (word(x) ^ 1 << 31) - (1 << 31)


def half(x):
    """The bits of a float that is rounded to 16 bits."""
    return x.astype(np.float16).view(np.uint16).astype(np.int64)


def permuted(a, b, selector):
    both = word(b) << 32 | word(a)
    return sum((both >> 8 * (word(selector) >> 4 * i & 7) & 0xFF) << 8 * i for i in range(4))


# Of PTX, what computes in registers.
INSTRUCTIONS: dict[str, Callable] = {
    "add.s32": np.add,
    "sub.s32": np.subtract,
    "max.s32": lambda a, b: np.maximum(signed(a), signed(b)),
    "and.b32": np.bitwise_and,
    "shl.b32": lambda a, b: word(word(a) << b),
    "shr.u32": lambda a, b: word(a) >> np.minimum(b, 32),
    "setp.gt.s32": lambda a, b: signed(a) > signed(b),
    "setp.ne.s32": lambda a, b: word(a) != word(b),
    "setp.ne.b32": lambda a, b: word(a) != word(b),
    "selp.b32": lambda a, b, p: np.where(p, a, b),
    "shf.r.wrap.b32": lambda low, high, by: word((word(high) << 32 | word(low)) >> (by & 31)),
    "prmt.b32": permuted,
    "mov.b16": np.asarray,
    "mov.b32": lambda low, high=0: low | high << 16,
    "cvt.u32.u16": lambda x: x & 0xFFFF,
    "cvt.rn.f16.f32": half,
    "cvt.rn.f16x2.f32": lambda high, low: half(high) << 16 | half(low),
}


@functools.cache
def statements(text: str) -> list[tuple[bool, str, list[str]]]:
    """Of PTX: whether the predicate p guards it, the instruction, its operands; [] and {} around them."""
    found = []
    for line in text.strip("{} ").split(";"):
        is_guarded, name, rest = re.fullmatch(r"\s*(@p )?\s*(\S*)\s*(.*)", line, re.DOTALL).groups()
        if name and not name.startswith(IGNORED):
            parts = re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,{}\[\]]+", rest)
            found.append((bool(is_guarded), name, [part.strip() for part in parts if part.strip()]))
    return found


class Memory:
    """Bytes from an address on, and how often each was written."""

    def __init__(self, data: np.ndarray, start: int = 0):
        self.bytes, self.start, self.written = data, start, np.zeros(data.size, int)

    def places(self, addresses: np.ndarray, size: int, aligned: int = 0) -> np.ndarray:
        first = addresses.astype(np.int64) - self.start
        assert np.all(addresses % (aligned or size) == 0), "not aligned"
        assert np.all((first >= 0) & (first <= self.bytes.size - size)), "outside of the array"
        return first[:, None] + np.arange(size)

    def read(self, addresses: np.ndarray, width: int, count: int, aligned: int = 0) -> np.ndarray:
        """Numbers of `width` bytes, `count` from each address on."""
        return self.bytes[self.places(addresses, width * count, aligned)].view(f"<u{width}").astype(np.int64)

    def write(self, addresses: np.ndarray, numbers: np.ndarray, width: int) -> None:
        at = self.places(addresses, width * numbers.shape[1])
        self.bytes[at] = numbers.astype(f"<u{width}").view(np.uint8)
        np.add.at(self.written, at, 1)


class Threads:
    """All threads of a grid, with `in_block` ones a block. `instructions`: more of PTX, that make floats of floats.
    `empty_anywhere`: copies of no byte may be from any address."""

    def __init__(
        self,
        count: int,
        memories: Sequence[Memory] = (),
        in_block: int = 1 << 30,
        instructions: Mapping[str, Callable] = {},
        empty_anywhere: bool = False,
    ):
        numbers = np.arange(count)
        self.ids = {"tid": numbers % in_block, "ctaid": numbers // in_block}
        self.lane, self.warp = numbers % 32, numbers // 32 * 32  # and the first thread of the warp
        self.all = np.ones(count, bool)
        self.memories, self.empty_anywhere = memories, empty_anywhere
        self.instructions = {**INSTRUCTIONS, **instructions}
        self.values: dict[ir.Value, np.ndarray] = {}

    def call(self, function: ir.Operation, arguments: Sequence[int], active: np.ndarray | None = None) -> None:
        block = function.regions[0].blocks[0]
        for value, number in zip(block.arguments, arguments, strict=True):
            self.values[value] = np.full(self.all.shape, number, dtype_of(value))
        self.run(block.operations, self.all if active is None else active)

    def run(self, ops: Iterable[ir.OpView], active: np.ndarray) -> None:
        for view in ops:
            op = view.operation
            inputs = [self.values[value] for value in op.operands]
            if op.name == "scf.if":
                for region, on in zip(op.regions, (inputs[0], ~inputs[0]), strict=True):
                    for block in region.blocks:
                        self.run(block.operations, active & on)
                        yielded = block.operations[len(block.operations) - 1].operands
                        for result, value in zip(op.results, yielded, strict=True):
                            found = self.values.get(result, self.values[value])
                            self.values[result] = np.where(on, self.values[value], found)
            elif op.name == "scf.for":
                at, end, step, *carried = inputs
                body = op.regions[0].blocks[0]
                yielded = body.operations[len(body.operations) - 1].operands
                while (inside := active & (at < end)).any():
                    self.values |= zip(body.arguments, (at, *carried), strict=True)
                    self.run(body.operations, inside)
                    carried = [np.where(inside, self.values[v], old) for v, old in zip(yielded, carried, strict=True)]
                    at = at + step
                self.values |= zip(op.results, carried, strict=True)
            elif op.name == "llvm.store":
                self.store(op.operands[0].type, *inputs, active)
            elif op.name == "llvm.load":
                self.values[op.results[0]] = self.load(op.results[0].type, inputs[0], active)
            elif op.name == "llvm.inline_asm":
                self.values |= zip(op.results, self.assembly(op, inputs, active), strict=True)
            elif op.name not in ("llvm.return", "scf.yield"):
                result = self.value(op, inputs)
                dtype = dtype_of(op.results[0])
                self.values[op.results[0]] = np.asarray(result).astype(dtype, copy=False)

    def value(self, op: ir.Operation, inputs: list[np.ndarray]) -> np.ndarray:
        if op.name in PLAIN:
            return PLAIN[op.name](*inputs)
        if op.name in CASTS:
            return inputs[0]
        if op.name == "arith.constant":
            return np.full(self.all.shape, op.attributes["value"].value)
        if op.name == "arith.bitcast":
            return inputs[0].view(dtype_of(op.results[0]))
        if op.name == "arith.cmpi":
            predicate = op.attributes["predicate"].value
            return (INTEGERS_COMPARED[predicate] if predicate < 6 else unsigned(INTEGERS_COMPARED[predicate - 4]))(
                *inputs
            )
        if op.name == "arith.cmpf":
            predicate, nan = op.attributes["predicate"].value, np.isnan(inputs[0]) | np.isnan(inputs[1])
            ordered = predicate < 8
            kind = (predicate - 1) % 7
            if kind == 6:  # whether there is an order at all
                return ~nan if ordered else nan
            return FLOATS_COMPARED[kind](*inputs) & ~nan if ordered else FLOATS_COMPARED[kind](*inputs) | nan
        if op.name.startswith("nvvm.read.ptx.sreg."):
            return self.ids[op.name.split(".")[-2]]
        if op.name == "nvvm.shfl.sync":
            other = self.lane ^ inputs[2] if "bfly" in str(op.attributes["kind"]) else inputs[2]
            return inputs[1][self.warp + other]
        if op.name == "llvm.getelementptr":
            element = ir.TypeAttr(op.attributes["elem_type"]).value
            return inputs[0] + inputs[1] * max(element.width // 8, 1)
        if op.name == "llvm.extractvalue":
            return inputs[0][op.attributes["position"][0]]
        if op.name == "llvm.extractelement":  # of vectors, an array per element
            return inputs[0][int(inputs[1][0])]
        if op.name == "llvm.insertelement":
            return np.stack([inputs[1] if i == inputs[2][0] else lane for i, lane in enumerate(inputs[0])])
        if op.name == "llvm.mlir.undef":
            return np.full((op.results[0].type.shape[0], *self.all.shape), -1)
        assert op.name == "llvm.mlir.addressof", op.name
        return np.zeros(self.all.shape)

    def load(self, kind: ir.Type, addresses: np.ndarray, active: np.ndarray) -> np.ndarray:
        """An element, or a vector of them, by the threads that are active."""
        is_vector, dtype = isinstance(kind, ir.VectorType), np.dtype(dtype_of_element(kind))
        bits = self.read(addresses, active, dtype.itemsize, kind.shape[0] if is_vector else 1)
        found = bits.T.astype(f"u{dtype.itemsize}").view(dtype)
        return found if is_vector else found[0]

    def store(self, kind: ir.Type, value: np.ndarray, addresses: np.ndarray, active: np.ndarray) -> None:
        dtype = np.dtype(dtype_of_element(kind))
        bits = np.atleast_2d(value).astype(dtype).view(f"u{dtype.itemsize}")
        self.write(addresses, active, list(bits), dtype.itemsize)

    def assembly(self, op: ir.Operation, inputs: list[np.ndarray], active: np.ndarray) -> list:
        """The value of the op, for a struct a list of its members."""
        outputs = op.attributes["constraints"].value.count("=")
        known = {f"${outputs + i}": value for i, value in enumerate(inputs)}

        def get(name: str) -> np.ndarray:
            return known[name] if name in known else np.int64(int(name, 0))

        def address(part: str) -> np.ndarray:
            name, _, offset = part.partition("+")
            return get(name) + int(offset or 0)

        def names(part: str) -> list[str]:
            return [name.strip() for name in part.strip("{}").split(",")]

        for is_guarded, name, parts in statements(op.attributes["asm_string"].value):
            on = active & known["p"].astype(bool) if is_guarded else active
            if name in self.instructions:
                assert not is_guarded, name
                known[parts[0]] = self.instructions[name](*(get(v) for part in parts[1:] for v in names(part)))
                continue
            if name.startswith("cp.async."):
                self.copy(*(address(part.strip("[]")) for part in parts), on)
                continue
            loads = name.startswith("ld")
            registers = names(parts[0 if loads else 1])
            addresses = address(parts[1 if loads else 0].strip("[]"))
            if name.startswith("ldmatrix"):
                found = self.matrices(self.read(addresses, on, 2, 8), len(registers), ".trans" in name)
            elif name.startswith("stmatrix"):
                assert np.all(addresses[on] % 16 == 0)
                for number, register in enumerate(registers):
                    rows = addresses[self.warp + 8 * number + self.lane // 4]
                    self.write(rows + 4 * (self.lane % 4), on, [get(register)], 4)
            else:
                width = re.fullmatch(r"(?:ld|st)\.(?:global|shared)(?:\.nc)?(?:\.v\d)?\.([bfu])(\d+)", name)
                assert width, name
                if loads:
                    found = self.read(addresses, on, int(width[2]) // 8, len(registers))
                else:
                    stored = [get(r).astype("f4").view("u4") if width[1] == "f" else get(r) for r in registers]
                    self.write(addresses, on, stored, int(width[2]) // 8)
            if loads:
                old = [known.get(register, 0) if is_guarded else 0 for register in registers]
                known |= {r: np.where(on, new, o) for r, new, o in zip(registers, found.T, old, strict=True)}
        results = [known[f"${i}"] for i in range(outputs)]
        if outputs > 1:
            return [results]
        return [np.asarray(x).astype(dtype_of(value)) for x, value in zip(results, op.results, strict=True)]

    def read(self, addresses: np.ndarray, on: np.ndarray, width: int, count: int, aligned: int = 0) -> np.ndarray:
        found = np.zeros((on.size, count), np.int64)
        if on.any():
            found[on] = self._memory(addresses[on]).read(addresses[on], width, count, aligned)
        return found

    def write(self, addresses: np.ndarray, on: np.ndarray, numbers: Sequence[np.ndarray], width: int) -> None:
        if on.any():
            numbers = np.stack([np.broadcast_to(number, on.shape)[on] for number in numbers], 1)
            self._memory(addresses[on]).write(addresses[on], numbers, width)

    def copy(self, to: np.ndarray, addresses: np.ndarray, size: int, counts: np.ndarray, on: np.ndarray) -> None:
        """`counts` bytes from the addresses, then 0 up to `size`. Where they are none, the address is one of a byte."""
        found = np.zeros((on.size, int(size)), np.int64)
        assert np.all(addresses[on] % size == 0), "not aligned"
        assert np.all((counts[on] >= 0) & (counts[on] <= size)), counts
        for count in np.unique(counts[on]):
            some = on & (counts == count)
            if count or not self.empty_anywhere:
                read = self.read(addresses, some, 1, max(count, 1), aligned=1)
                found[some, :count] = read[some, :count]
        self.write(to, on, list(found.T), 1)

    def _memory(self, addresses: np.ndarray) -> Memory:
        """The last that begins before these; its first byte may be a little after what is read by mistake."""
        return max((m for m in self.memories if m.start <= addresses[0]), key=lambda m: m.start)

    def matrices(self, rows: np.ndarray, count: int, is_transposed: bool) -> np.ndarray:
        """Words of two halves of 8 × 8 matrices, whose rows lanes 8·number… have."""
        outer, inner = self.lane // 4, 2 * (self.lane % 4)
        found = []
        for number in range(count):
            of = self.warp + 8 * number
            halves = [rows[of + inner + i, outer] if is_transposed else rows[of + outer, inner + i] for i in (0, 1)]
            found.append(halves[0] | halves[1] << 16)
        return np.stack(found, 1)
