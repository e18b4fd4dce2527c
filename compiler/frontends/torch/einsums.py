"""aten.einsum written out: what torch-mlir knows no lowering of, and products of open sizes.

    bii->b              the sum of a diagonal
    ijk,kl->il          a sum over j, then the product
    ab,bc,cd->ad        two products, in torch's order

One of open sizes is one product of matrices, which rows, columns and sums are merged for such that they can be told
apart again:

    bgrnd,bgmd->bgrnm   [b, g, n·r, d] × [b, g, d, m], where n is open and r known

torch merges them in the order of the letters: r·n is what an index of r and n has no known stride in.
"""

import contextlib
import math
import string
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch


class Term(NamedTuple):
    """An operand, and a letter for each of its dimensions."""

    value: torch.Tensor
    letters: str

    def size(self, letter: str) -> Any:
        return self.value.shape[self.letters.index(letter)]

    def permuted(self, letters: Sequence[str]) -> torch.Tensor:
        return self.value.permute([self.letters.index(c) for c in letters])

    def without(self, value: torch.Tensor, letters: Collection[str]) -> "Term":
        """`value`, which lacks the dimensions of these letters."""
        return Term(value, "".join(c for c in self.letters if c not in letters))


def einsum(equation: str, operands: Sequence[torch.Tensor], path: Sequence[int] | None = None) -> Any:
    """Written out, but for products of two operands of known sizes, none of them 0, by which the importer divides, in
    which no letter is repeated, or summed in one operand alone."""
    terms, out = _read(equation, operands)
    is_known = all(isinstance(size, int) and size for x in operands for size in x.shape)
    left = _prepared(terms, out)
    is_plain = len(terms) == 2 and "->" in equation and all(x is y for x, y in zip(terms, left, strict=True))
    if is_plain and is_known:
        return NotImplemented
    return _products(left, out, path)


def products(equation: str, operands: Sequence[torch.Tensor], path: Sequence[int] | None = None) -> torch.Tensor:
    """The same, of known sizes too."""
    terms, out = _read(equation, operands)
    return _products(_prepared(terms, out), out, path)


def _prepared(terms: Sequence[Term], out: str) -> list[Term]:
    """With each letter once, and none that is to be summed in one operand alone."""
    left = [_diagonal(term) for term in terms]
    left = [_without_ones(term, left) for term in left]
    return [_summed(term, left, out) for term in left]


def _products(left: list[Term], out: str, path: Sequence[int] | None) -> torch.Tensor:
    for first, second in _in_order(len(left), path):
        pair = left[first], left[second]
        left = [term for i, term in enumerate(left) if i not in (first, second)]
        left.append(_product(*pair, {*out}.union(*(term.letters for term in left))))
    return left[0].permuted(out)


def _read(equation: str, operands: Sequence[torch.Tensor]) -> tuple[list[Term], str]:
    """The operands, and the letters of the result; digits are those of "...", the last of which is 9."""
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    terms = []
    for value, written in zip(operands, inputs.split(","), strict=True):
        others = value.dim() - len(written.replace("...", ""))
        terms.append(Term(value, written.replace("...", string.digits[10 - others :])))
    together = "".join(term.letters for term in terms)
    dots = "".join(d for d in string.digits if d in together)
    if not arrow:
        out = "..." + "".join(sorted(c for c in {*together} if c.isalpha() and together.count(c) == 1))
    return terms, out.replace("...", dots)


def _diagonal(term: Term) -> Term:
    """Of a letter that stands for several dimensions."""
    for c in dict.fromkeys(term.letters):
        while term.letters.count(c) > 1:
            first = term.letters.index(c)
            second = term.letters.index(c, first + 1)
            term = Term(term.value.diagonal(0, first, second), term.letters.replace(c, "", 2) + c)
    return term


def _without_ones(term: Term, terms: Sequence[Term]) -> Term:
    """Without dimensions of one element that are more in other operands."""
    ones = [c for c in term.letters if _is_one(term, c) and any(c in t.letters and not _is_one(t, c) for t in terms)]
    return term.without(term.value.squeeze([term.letters.index(c) for c in ones]), ones) if ones else term


def _is_one(term: Term, letter: str) -> bool:
    return isinstance(size := term.size(letter), int) and size == 1


def _summed(term: Term, terms: Sequence[Term], out: str) -> Term:
    """Over what neither the result nor another operand has."""
    lone = [c for c in term.letters if c not in out and sum(c in other.letters for other in terms) == 1]
    return term.without(term.value.sum([term.letters.index(c) for c in lone]), lone) if lone else term


def _in_order(count: int, path: Sequence[int] | None) -> list[tuple[int, int]]:
    """Which two of the terms that are left are multiplied, one product after the other, each of which becomes the last
    term: as torch says, else from left to right."""
    if path:
        return list(zip(path[::2], path[1::2], strict=True))
    return [(0, 1), *((left - 1, 0) for left in range(count - 1, 1, -1))] if count > 1 else []


def _product(x: Term, y: Term, needed: Collection[str]) -> Term:
    """Of two terms, summed over what both have and is not `needed` any more."""
    both = [c for c in x.letters if c in y.letters]
    sizes = {c: term.size(c) for term in (y, x) for c in term.letters}

    def group(letters: Collection[str]) -> list[str]:  # open ones first, so that strides are known
        return sorted(letters, key=lambda c: isinstance(sizes[c], int))

    batch, summed = group([c for c in both if c in needed]), group([c for c in both if c not in needed])
    rows, columns = (group([c for c in term.letters if c not in both]) for term in (x, y))
    letters = "".join([*batch, *rows, *columns])
    if not summed:
        left, right = x.permuted([*batch, *rows]), y.permuted([*batch, *columns])
        wide, tall = (None,) * len(columns), (None,) * len(rows)
        return Term(left[(..., *wide)] * right[(slice(None),) * len(batch) + tall], letters)
    left = _merged(x.permuted([*batch, *rows, *summed]), len(batch), [len(rows), len(summed)])
    right = _merged(y.permuted([*batch, *summed, *columns]), len(batch), [len(summed), len(columns)])
    return Term((left @ right).reshape([sizes[c] for c in letters]), letters)


def _merged(x: torch.Tensor, first: int, counts: Sequence[int]) -> torch.Tensor:
    """`x` with its dimensions from `first` on merged, so many each time."""
    if all(count == 1 for count in counts):
        return x
    shape = list(x.shape[:first])
    for count in counts:
        shape.append(math.prod(x.shape[first : first + count]))
        first += count
    return x.reshape(shape)


@contextlib.contextmanager
def autocast(graph: torch.fx.Graph) -> Iterator[None]:
    """Within it, factors of sums are cast to the type that autocast has for those, which it does within torch's own
    einsum: not in one that stays whole, or is written out here."""
    before: list[tuple[torch.fx.Node, tuple[Any, ...]]] = []
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.einsum.default):
        equation, operands, *path = node.args
        values = [operand.meta["val"] for operand in operands]
        kind = _autocast(node.meta["val"], values)
        if kind is None:
            continue
        before.append((node, node.args))
        with graph.inserting_before(node):
            factors = [graph.call_function(torch.ops.aten.to.dtype, (operand, kind)) for operand in operands]
        for factor, value in zip(factors, values, strict=True):
            factor.meta["val"] = value.to(kind)
        node.args = (equation, factors, *path)
    try:
        yield
    finally:
        for node, args in before:
            factors, node.args = node.args[1], args
            for factor in factors:
                graph.erase_node(factor)


def _autocast(result: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.dtype | None:
    """The type that autocast has for factors, if it cast these: `result` is of it then. Where nothing is summed, be it
    that what would be has a single element, torch multiplies element by element, which is not cast."""
    device = result.device.type
    if not torch.is_autocast_enabled(device):
        return None
    kind = torch.get_autocast_dtype(device)
    return kind if result.dtype == kind and any(x.dtype != kind for x in operands) else None
