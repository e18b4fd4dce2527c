"""Older spellings of upstream's ops, brought up to date so that upstream's parser reads them.

``tensor.expand_shape %x [[0, 1]] : tensor<8xf32> into tensor<2x4xf32>`` had no ``output_shape`` until 2024.
"""

import re
from collections.abc import Iterator

from .lexer import Source, SyntaxProblem

_EXPAND_SHAPE = re.compile(r"(?<![\w$.])(?:tensor|memref)\.expand_shape\s+%[\w$.\-]+(?:#\d+)?\s*(?=\[)")


def insertions(source: Source) -> Iterator[tuple[int, str]]:
    """What to insert, and where: pairs of an offset and a text."""
    if "expand_shape" not in source.mask:
        return
    for match in _EXPAND_SHAPE.finditer(source.mask):
        end = source.end_of_brackets(match.end())
        at = source.skip_blank(end)
        if source.mask.startswith("{", at):  # an attribute dictionary
            at = source.skip_blank(source.end_of_brackets(at))
        if source.mask.startswith(":", at):
            yield end, f" output_shape [{', '.join(_result_shape(source, at + 1))}]"


def _result_shape(source: Source, at: int) -> list[str]:
    into = source.skip_blank(source.end_of_type(source.skip_blank(at)))
    if not source.mask.startswith("into", into):
        raise SyntaxProblem(into, f"expected 'into' but found {source.found(into)}")
    start = source.skip_blank(into + len("into"))
    kind = source.clean[start : source.end_of_type(start)]
    shape = re.match(r"\w+\s*<\s*((?:(?:\d+|\?)\s*x\s*)*)", kind)
    sizes = re.findall(r"\d+|\?", shape.group(1)) if shape else []
    if "?" in sizes:
        raise SyntaxProblem(start, "expected output_shape [sizes] before ':', since the result has dynamic sizes")
    return sizes
