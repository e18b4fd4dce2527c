"""From places in a generated text back to places in the text that it was generated from."""

import bisect

from ..mlir import ir
from .lexer import Source, line_starts

PARSED_FILE = "-"  # what upstream calls the text that it is handed


class Rewriting:
    """Builds a text out of pieces of a source and of new pieces, and knows where each came from.

    What is generated keeps every line of the source on its line: a new piece holds no line break, a piece that is
    copied by `copy` keeps its own, and `pad` makes up for the breaks of source that was rewritten on one line.
    """

    def __init__(self, source: Source):
        self.source = source
        self._pieces: list[str] = []
        self._length = 0
        self._starts: list[int] = []  # of the pieces, in the generated text
        self._origins: list[tuple[int, bool]] = []  # offset in the source, and whether the piece is a copy

    def _add(self, text: str, origin: int, copied: bool) -> None:
        if text:
            self._starts.append(self._length)
            self._origins.append((origin, copied))
            self._pieces.append(text)
            self._length += len(text)

    def copy(self, start: int, end: int) -> None:
        """The source's [start, end) as it stands."""
        self._add(self.source.text[start:end], start, True)

    def quote(self, start: int, end: int) -> None:
        """The source's [start, end) on one line, comments blanked out."""
        self._add(self.source.clean[start:end].replace("\n", " "), start, True)

    def put(self, text: str, origin: int) -> None:
        """New text that stands for what is at `origin`."""
        self._add(text, origin, False)

    def pad(self, start: int, end: int) -> None:
        """The line breaks of the source's [start, end)."""
        self._add("\n" * self.source.text.count("\n", start, end), end, False)

    def text(self) -> str:
        return "".join(self._pieces)


class SourceMap:
    """Maps lines and columns of the generated text onto those of the source."""

    def __init__(self, rewriting: Rewriting, text: str, changed: set[int]):
        self.text = text
        self.source = rewriting.source
        self.changed = changed
        self._starts = rewriting._starts
        self._origins = rewriting._origins
        self._lines: list[int] | None = None

    def place(self, line: int, col: int) -> tuple[int, int]:
        """The (line, column) of the source for those of the generated text; columns count bytes."""
        if line not in self.changed:
            return line, col
        if self._lines is None:
            self._lines = line_starts(self.text)
        start = self._lines[line - 1]
        end = self._lines[line] if line < len(self._lines) else len(self.text)
        offset = start + len(self.text[start:end].encode()[: col - 1].decode(errors="ignore"))
        piece = bisect.bisect_right(self._starts, offset) - 1
        origin, copied = self._origins[piece]
        return self.place_of(origin + (offset - self._starts[piece] if copied else 0))

    def place_of(self, offset: int) -> tuple[int, int]:
        """The (line, column) of an offset into the source."""
        line = self.source.line_of(offset)
        return line, len(self.source.text[self.source.line_starts[line - 1] : offset].encode()) + 1


def relocate(module: ir.Operation, filename: str, places: SourceMap) -> None:
    """Makes the locations that upstream's parser gave ops and block arguments name `filename` and the source's places.

    Upstream calls the text it parses "-"; locations that the text spells out are left alone.
    """
    file, advance = ir.Location.file, ir.WalkResult.ADVANCE

    def moved(location: ir.Location) -> ir.Location | None:
        if not isinstance(location, ir.FileLineColLoc) or location.filename != PARSED_FILE:
            return None
        line, col = location.start_line, location.start_col
        if line in places.changed:
            line, col = places.place(line, col)
        return file(filename, line, col)

    def visit(op: ir.Operation) -> ir.WalkResult:
        if location := moved(op.location):
            op.location = location
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    if location := moved(argument.location):
                        argument.set_location(location)
        return advance

    with module.context:
        module.walk(visit)
