"""Ops of linalg on tensors as text, whose sizes have letters: those of the loops that count through them."""


class LinalgText:
    """The lines of a function. A tensor's dimensions are written as the loops that count through them, as "bmd"; 0 is
    one of size 1."""

    def __init__(self, sizes: dict[str, int], dynamic: str, acc: str):
        """`dynamic`: sizes that are known at run time only, which are %size_b, …; `acc`: the type of sums."""
        self.sizes, self.dynamic, self.acc = sizes, dynamic, acc
        self.lines: list[str] = []

    def size(self, c: str) -> str:
        """In a type."""
        return "?" if c in self.dynamic else str(self.sizes[c])

    def value(self, c: str) -> str:
        """In an op."""
        return f"%size_{c}" if c in self.dynamic else str(self.sizes[c])

    def type(self, dims: str, element: str) -> str:
        return f"tensor<{''.join(self.size(c) + 'x' for c in dims)}{element}>"

    def map(self, loops: str, dims: str) -> str:
        return f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>"

    def empty(self, name: str, dims: str, element: str) -> str:
        kind = self.type(dims, element)
        sizes = ", ".join(self.value(c) for c in dims if c in self.dynamic)
        self.lines.append(f"%{name}_empty = tensor.empty({sizes}) : {kind}")
        return kind

    def filled(self, name: str, value: str, dims: str, element: str = "") -> str:
        element = element or self.acc
        kind = self.empty(name, dims, element)
        self.lines.append(f"%{name} = linalg.fill ins({value} : {element}) outs(%{name}_empty : {kind}) -> {kind}")
        return kind

    def generic(
        self,
        name: str,
        loops: str,
        reduced: str,
        ins: list[tuple[str, str, str]],
        out: tuple[str, str, str],
        body: list,
    ) -> None:
        """An op over `loops`; operands are (value, dims, element), and %in0, %in1, …, %out in the body."""
        operands = [*ins, out]
        maps = ", ".join(self.map(loops, dims) for _, dims, _ in operands)
        kinds = ", ".join('"reduction"' if c in reduced else '"parallel"' for c in loops)
        values, types = ", ".join(v for v, _, _ in ins), ", ".join(self.type(d, e) for _, d, e in ins)
        inputs = f" ins({values} : {types})" if ins else ""
        arguments = [f"%in{i}: {e}" for i, (_, _, e) in enumerate(ins)] + [f"%out: {out[2]}"]
        kind = self.type(out[1], out[2])
        lines = "\n".join(f"    {line}" for line in body)
        self.lines.append(
            f"%{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
            f"{inputs} outs({out[0]} : {kind}) {{\n  ^bb0({', '.join(arguments)}):\n{lines}\n  }} -> {kind}"
        )

    def contraction(self, name: str, loops: str, a: tuple[str, str, str], b: tuple[str, str, str], out: str) -> None:
        """out[…] += Σ a·b over the last loop."""
        body, names = [], []
        for i, (_, _, element) in enumerate((a, b)):
            if element != self.acc:
                body.append(f"%wide{i} = arith.extf %in{i} : {element} to {self.acc}")
            names.append(f"%in{i}" if element == self.acc else f"%wide{i}")
        body += [
            f"%product = arith.mulf {', '.join(names)} : {self.acc}",
            f"%sum = arith.addf %out, %product : {self.acc}",
            f"linalg.yield %sum : {self.acc}",
        ]
        self.generic(name, loops, loops[-1], [a, b], (f"%{name}_init", out, self.acc), body)

    def cast(
        self, name: str, value: str, dims: str, element: str, scale: float = 1.0, most: float | None = None
    ) -> None:
        """Multiplied by `scale`, kept from −most to most, and rounded."""
        acc, last, body = self.acc, "%in0", []
        for step, operation, number in (
            ("scaled", "mulf", None if scale == 1.0 else scale),
            ("below", "minimumf", most),
            ("inside", "maximumf", None if most is None else -most),
        ):
            if number is not None:
                self.lines.append(f"%{name}_{step} = arith.constant {literal(number)} : {acc}")
                body.append(f"%{step} = arith.{operation} {last}, %{name}_{step} : {acc}")
                last = f"%{step}"
        if element != acc:
            body.append(f"%rounded = arith.truncf {last} : {acc} to {element}")
            last = "%rounded"
        body.append(f"linalg.yield {last} : {element}")
        self.empty(name, dims, element)
        self.generic(name, dims, "", [(value, dims, acc)], (f"%{name}_empty", dims, element), body)

    def whole_type(self, sizes: list[str], element: str) -> str:
        return f"tensor<{'x'.join(sizes)}x{element}>"


def literal(value: float) -> str:
    return f"{value:.17e}"
