"""Masks of the scores in random models of ONNX, from inputs or computed, and what these are written with."""

from __future__ import annotations

from random_source import RandomSource


class RandomOnnxMasks(RandomSource):
    width: int
    opset: int
    least: float  # of the program's type
    types: dict[str, str]  # of inputs that are not of the program's
    knows_lengths: bool
    place_kind: str

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_numeric(self) -> bool:
        """Whether the type is one that operators have which know no bf16."""
        return self.dtype != "bf16"

    def number(self, letter: str) -> int | None:
        """A size, if it is known when the model is written."""
        letter = self.keys if letter == "t" and self.all_keys != "t" else letter
        if letter in ("t", "k"):
            if self.keys in self.open or (letter == "t" and self.past and "p" in self.open):
                return None
            return self.sizes[self.keys] + (self.past if letter == "t" else 0)
        return None if letter in self.open else self.sizes[letter]

    def part(self, name: str, axis: int, letter: str) -> str | int:
        """A size, as number or read from the value `name`."""
        known = self.number(letter)
        return known if known is not None and self.maybe(2) else f"op.size({name}, {axis})"

    def turned(self, name: str, rank: int = 0) -> str:
        rank = rank or 3 + len(self.batch)
        return f"op.Transpose({name}, perm={[*range(rank - 2), rank - 1, rank - 2]})"

    def typed(self, name: str, *kinds: str) -> str:
        """An input of whole numbers or booleans as one of these types."""
        self.types[name] = self.choose(kinds)
        return name

    def hide(self, *hidden: str, is_plane: bool = True) -> None:
        """By a mask, in any way of writing that; `is_plane`: it has two dimensions."""
        h = self.choose(hidden)
        if is_plane and self.maybe(6):
            h = f"op.Unsqueeze({h}, {[*range(self.rank - 2)]})"
        low = self.choose(("-math.inf", "-math.inf", "-1e4", str(self.least)))
        way = self.choose(("where", "where", "added", "negated", "numbers", "turned", "multiplied"))
        if way == "where":
            self.say(f"s = op.Where({h}, {low}, s)")
        elif way == "negated":
            self.say(f"s = op.Where(~({h}), s, {low})")
        elif way == "added":
            zero = "op.constant(0.0, s.kind)"
            self.say(f"s = s + op.Where({h}, op.constant({low}, s.kind), {zero})")
        elif way == "numbers":
            self.say(f"s = s + op.cast({h}, s.kind) * {str(self.least) if low == '-math.inf' else low}")
        elif way == "turned":
            self.say(f"s = s + (1 - op.cast(~({h}), s.kind)) * {str(self.least) if low == '-math.inf' else low}")
        else:
            self.say(f"kept = op.cast(~({h}), s.kind)")
            self.say("s = s * kept - 1e4 * (1 - kept)")

    def causal(self) -> None:
        self.hide("j > i", "j > i + older", "j < i", "(j > i) & (j >= 4)", "~(j <= i)", "op.Less(i, j)", "~(i >= j)")

    def window(self) -> None:
        size = self.choose((0, 3, 16, 40))
        self.hide(f"op.Abs(i - j) > {size}", f"(j > i) | (i - j > {size})", f"op.Abs(i + older - j) > {size}")

    def pattern(self) -> None:
        self.hide(
            "~op.Equal(i / 4, j / 4)",
            "op.Equal((i - j) % 2, 1)",
            "op.Greater((i - j) % 3, 0)",
            "(j * 5 + i * 3) % 7 > 4",
        )

    def triangle(self) -> None:
        """As torch's exporters write triu and tril."""
        if self.opset < 14:
            self.hide("j >= i + 1")
            return
        if self.maybe(3):
            low = self.choose(("-math.inf", "-1e4", str(self.least)))
            filled = f"op.cast(op.filled(op.shape(m, n), {low}, FLOAT), s.kind)"
            self.say(f"s = s + op.Trilu({filled}, 1, upper=1)")
            return
        one = self.choose(("FLOAT", "INT64", "BOOL"))
        ones = (
            f"op.filled(op.shape(m, n), 1, {one})"
            if one != "BOOL"
            else "op.cast(op.filled(op.shape(m, n), 1, INT64), BOOL)"
        )
        upper, lower = f"op.Trilu({ones}, 1, upper=1)", f"op.Trilu({ones}, upper=0)"
        if one == "BOOL":
            self.hide(upper, f"~{lower}")
        else:
            self.hide(f"op.cast({upper}, BOOL)", f"op.Equal({lower}, 0)", f"{upper} > 0", f"~op.cast({lower}, BOOL)")

    def buffer(self) -> None:
        """A mask that is cut out of a larger one, as in GPT-2; or a constant of the sizes that are known."""
        if self.keys == "m":
            self.say("seen = op.constant(np.tril(np.ones((200, 200), bool)), BOOL)")
            self.say("seen = op.cut(op.cut(seen, 0, n - m, n), 1, 0, n)")
            self.hide("~seen")
        elif self.knows_lengths:
            shape = f"({self.number('m')}, {self.number('t')})"
            made = self.choose((f"np.tri(*{shape}) == 0", f"np.triu(np.ones({shape}), 1)", f"np.eye(*{shape})"))
            self.hide(f"op.constant({made}, BOOL)")

    def kept(self) -> None:
        keep = self.typed(self.argument("keep", self.broadcast(), "keep"), "BOOL", "INT64", "INT32", "FLOAT")
        is_kept = keep
        if self.types[keep] != "BOOL":
            is_kept = self.choose((f"op.cast({keep}, BOOL)", f"op.Greater({keep}, 0)", f"~op.Equal({keep}, 0)"))
        self.hide(f"~{is_kept}" if is_kept[0] != "~" else is_kept[1:], is_plane=False)

    def masked(self) -> None:
        """BERT's: numbers for the keys of each sequence."""
        if "b" not in self.dims:
            return
        keep = self.typed(self.argument("keep", ("b", self.all_keys), "keep"), "INT64", "FLOAT")
        wide = f"op.Unsqueeze({keep}, {[*range(1, self.rank - 1)]})"
        self.say(f"s = s + (1 - op.cast({wide}, s.kind)) * {self.choose(('-1e4', str(self.least)))}")

    def cached(self) -> None:
        """Llama's: what is above the diagonal and what is padded, in one mask of all sequences."""
        if self.dims != "bhmt" or self.opset < 14:
            return
        keep = self.typed(self.argument("keep", ("b", self.all_keys), "keep"), "INT64", "BOOL")
        self.say(f"low = op.Trilu(op.filled(op.shape(m, n), {self.least}, FLOAT), 1, upper=1)")
        self.say("low = low * op.cast(j > i + older, FLOAT)")
        self.say(f"low = op.Expand(op.Unsqueeze(low, [0, 1]), op.shape({self.part('q', 0, 'b')}, 1, 1, 1))")
        self.say(f"absent = op.Equal(low + op.cast(op.Unsqueeze({keep}, [1, 2]), FLOAT), 0)")
        self.say(f"s = s + op.cast(op.Where(absent, {self.least}, low), s.kind)")

    def padded(self) -> None:
        if "b" in self.dims:
            lengths = self.typed(self.argument("lengths", ("b",), "lengths"), "INT64", "INT32")
            wide = f"op.cast(op.Unsqueeze({lengths}, {[*range(1, self.rank)]}), {self.place_kind})"
            self.hide(f"j >= {wide}", f"~(j < {wide})", is_plane=False)

    def segments(self) -> None:
        keys = self.argument("segments", (self.all_keys,), "segments")
        self.types[keys] = self.place_kind
        self.hide(f"~op.Equal(op.Unsqueeze({keys}, [1]), {keys})" if self.all_keys == "m" else f"{keys} > i")
