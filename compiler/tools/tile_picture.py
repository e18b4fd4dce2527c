"""A picture of a tile schedule, as SVG: the plane of queries and keys, its tiles, their order, the dead ones."""

import dataclasses
import html
from collections.abc import Callable, Sequence
from typing import Any

from ...transforms.formulas import Formula, evaluated, loops_in
from ..explain import parallel
from .report_style import COLOURS, PLANE

MOST_TILES = 96  # along an axis; of more, the first ones are drawn
LARGEST, SMALLEST = 400.0, 110.0  # of the plane, in pixels
MARGIN_LEFT, MARGIN_TOP = 92.0, 46.0
NUMBERED = 21.0  # pixels that a tile needs for its number
LEGEND_LINE = 18.0
NUMBER_HEIGHT = 13.0  # the last tiles may be smaller than the others, and have none
ARROWS = 3  # outer steps whose way is drawn

LIVE, MASKED, DEAD, PLAIN = "live", "masked", "dead", "plain"
LEGEND = {
    LIVE: "computed, the mask left out",
    MASKED: "computed with the mask",
    DEAD: "dead: skipped",
    PLAIN: "computed",
}
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" class="arrowhead"/></marker></defs>'
)


@dataclasses.dataclass(frozen=True)
class Axis:
    """Queries or keys: `place` is that of its loop, 0 the outermost, or None where it is not tiled."""

    name: str
    extent: int
    tile: int
    place: int | None
    parallel: bool

    @property
    def tiles(self) -> int:
        return max(1, -(-self.extent // self.tile))

    @property
    def shown(self) -> int:
        return min(self.tiles, MOST_TILES)


@dataclasses.dataclass(frozen=True)
class Plane:
    """`kinds`: for each shown tile of the queries, for each of the keys, what is done; `sampled`: sizes are made up."""

    queries: Axis
    keys: Axis
    kinds: list[list[str]]
    sampled: bool

    @property
    def outer(self) -> Axis:
        """The axis of which each tile has an order of its own: the outer loop, or the only parallel one."""
        if self.queries.parallel != self.keys.parallel:
            return self.queries if self.queries.parallel else self.keys
        places = {axis: 99 if axis.place is None else axis.place for axis in (self.queries, self.keys)}
        return min(places, key=lambda axis: places[axis])

    def count(self, kind: str) -> int:
        return sum(row.count(kind) for row in self.kinds)


def _size(found: list, shapes: Sequence[Sequence[int]]) -> int | None:
    if found[0] != "dim":
        return None
    argument, d = found[1:]
    return shapes[argument][d] if argument < len(shapes) and d < len(shapes[argument]) else None


def with_sizes(fused: dict[str, Any], shapes: Sequence[Sequence[int]] | None) -> dict[str, Any]:
    """What was fused, with the extents of its loops for arguments of these shapes, as far as they are known."""
    loops = []
    for loop in fused["details"]["loops"]:
        known = evaluated(loop["extent"], lambda found: _size(found, shapes or ()))
        loops.append(loop if known is None else {**loop, "extent": known})
    return {**fused, "details": {**fused["details"], "loops": loops}}


def plane_of(fused: dict[str, Any], shapes: Sequence[Sequence[int]] | None = None) -> Plane | None:
    """The plane of what was fused (see ``explain.fused``), for arguments of these shapes; None if it is no plane."""
    loops = with_sizes(fused, shapes)["details"]["loops"]
    if not fused["details"]["attention"] or not any(loop["axis"] in ("queries", "keys") for loop in loops):
        return None
    sample = 5 * max(loop["tile"] for loop in loops) + max(1, max(loop["tile"] for loop in loops) // 2)
    used_sample = False

    def leaf(found: list) -> int | None:
        nonlocal used_sample
        if shapes is not None:
            return _size(found, shapes)
        if found[0] == "dim":
            used_sample = True
            return sample
        return None

    axes: dict[str, Axis] = {}
    for place, loop in enumerate(loops):
        extent = evaluated(loop["extent"], leaf)
        if extent is None:
            extent, used_sample = sample, True
        if loop["axis"] in ("queries", "keys"):
            axes[loop["axis"]] = Axis(loop["axis"], extent, loop["tile"], place, place in parallel(fused))
    given = next(iter(axes.values()))
    for name in ("queries", "keys"):
        axes.setdefault(name, Axis(name, given.extent, given.extent, None, False))
    queries, keys = axes["queries"], axes["keys"]
    split = next((e["details"] for e in fused["also"] if e["details"].get("kind") == "split"), None)
    kinds = _kinds(queries, keys, split, leaf) if split else None
    if kinds is None:
        kinds = [[PLAIN] * keys.shown for _ in range(queries.shown)]
    return Plane(queries, keys, kinds, used_sample)


def _kinds(
    queries: Axis, keys: Axis, split: dict[str, Any], leaf: Callable[[list], int | None]
) -> list[list[str]] | None:
    """What the parts of the split loop say of each tile; None where that is not known."""
    candidates = [axis for axis in (queries, keys) if axis.place is not None and axis.tile == split["step"]]
    if not candidates:
        return None
    innermost = split["loops_inside"] == 0
    along = sorted(candidates, key=lambda axis: axis.place or 0)[-1 if innermost else 0]
    across = keys if along is queries else queries
    bounds: list[Formula] = [part[end] for part in split["parts"] for end in ("from", "to")]
    if any(step != across.tile for bound in bounds for step in loops_in(bound)):
        return None
    table = [[DEAD] * keys.shown for _ in range(queries.shown)]
    for i in range(across.shown):

        def at(found: list, offset: int = i * across.tile) -> int | None:
            return offset if found[0] == "loop" else leaf(found)

        for part in split["parts"]:
            low, high = evaluated(part["from"], at), evaluated(part["to"], at)
            if low is None or high is None:
                return None
            for j in range(along.shown):
                if low <= j * along.tile < high:
                    q, k = (i, j) if along is keys else (j, i)
                    table[q][k] = MASKED if part["masked"] else LIVE
    return table


def caption(plane: Plane) -> str:
    """One or two sentences on the picture."""
    q, k = plane.queries, plane.keys
    total = q.shown * k.shown
    text = f"{q.extent} queries × {k.extent} keys in {q.tiles} × {k.tiles} tiles of {q.tile} × {k.tile}"
    if plane.count(PLAIN):
        text += "; all of them are computed alike."
    else:
        dead, masked = plane.count(DEAD), plane.count(MASKED)
        text += "" if total == q.tiles * k.tiles else f"; of the first {q.shown} × {k.shown}"
        text += f": {dead} dead and skipped ({100 * dead / total:.0f}\u00a0%), {masked} with the mask, "
        text += f"{plane.count(LIVE)} without it."
    if plane.sampled:
        text += " Sizes are dynamic; these are an example."
    return text


def legend(plane: Plane) -> dict[str, str]:
    """What the colours in its picture mean."""
    return {kind: text for kind, text in LEGEND.items() if plane.count(kind)}


def picture(plane: Plane) -> str:
    """The SVG element; its colours come from the page's style."""
    drawing = _Drawing(plane)
    return (
        f'<svg class="plane" viewBox="0 0 {drawing.right:.0f} {drawing.bottom:.0f}" width="{drawing.right:.0f}" '
        f'role="img" aria-label="{html.escape(caption(plane))}">{HEAD}{drawing.content()}</svg>'
    )


def file(planes: Sequence[Plane]) -> str:
    """An SVG file that needs no page: the planes below each other, each with its legend."""
    bottom, right, content = 0.0, 0.0, []
    for plane in planes:
        drawing = _Drawing(plane)
        below = drawing.bottom + 4
        content.append(f'<g transform="translate(12,{bottom + 8:.0f})">{drawing.content()}')
        for line, (kind, text) in enumerate(legend(plane).items()):
            x, y = MARGIN_LEFT, below + LEGEND_LINE * line
            content.append(f'<rect class="tile {kind}" x="{x}" y="{y:.1f}" width="13" height="13"/>')
            content.append(f'<text class="small" x="{x + 20}" y="{y + 11:.1f}">{text}</text>')
        content.append("</g>")
        bottom += below + LEGEND_LINE * len(legend(plane)) + 16
        right = max(right, drawing.right + 24)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:.0f} {bottom:.0f}" width="{right:.0f}">'
        f"<title>{html.escape(' '.join(map(caption, planes)))}</title><style>{COLOURS}{PLANE}</style>{HEAD}"
        f'<rect width="100%" height="100%" fill="var(--card)"/>{"".join(content)}</svg>\n'
    )


class _Drawing:
    def __init__(self, plane: Plane):
        self.plane = plane
        q, k = plane.queries, plane.keys
        self.rows, self.columns = q.shown, k.shown
        shown_q, shown_k = min(q.extent, self.rows * q.tile), min(k.extent, self.columns * k.tile)
        scale = LARGEST / max(shown_q, shown_k, 1)
        self.width, self.height = max(SMALLEST, shown_k * scale), max(SMALLEST, shown_q * scale)
        self.x = [MARGIN_LEFT + self.width * min(j * k.tile, shown_k) / shown_k for j in range(self.columns + 1)]
        self.y = [MARGIN_TOP + self.height * min(i * q.tile, shown_q) / shown_q for i in range(self.rows + 1)]
        self.parts: list[str] = []

    @property
    def right(self) -> float:
        return MARGIN_LEFT + self.width + 16

    @property
    def bottom(self) -> float:
        return MARGIN_TOP + self.height + 18

    def content(self) -> str:
        """The elements."""
        self._tiles()
        self._grid()
        self._order()
        self._labels()
        return "".join(self.parts)

    def _tiles(self) -> None:
        """Neighbours of one kind in a row are one rectangle."""
        for i in range(self.rows):
            row, start = self.plane.kinds[i][: self.columns], 0
            for j in range(1, len(row) + 1):
                if j == len(row) or row[j] != row[start]:
                    self.parts.append(
                        f'<rect class="tile {row[start]}" x="{self.x[start]:.1f}" y="{self.y[i]:.1f}" '
                        f'width="{self.x[j] - self.x[start]:.1f}" height="{self.y[i + 1] - self.y[i]:.1f}"/>'
                    )
                    start = j

    def _grid(self) -> None:
        path = "".join(f"M{x:.1f} {self.y[0]:.1f}V{self.y[-1]:.1f}" for x in self.x)
        path += "".join(f"M{self.x[0]:.1f} {y:.1f}H{self.x[-1]:.1f}" for y in self.y)
        self.parts.append(f'<path class="grid" d="{path}"/>')

    def _order(self) -> None:
        """Numbers where there is room for them, in the order of the loops; else arrows along the inner loop."""
        by_rows = self.plane.outer is self.plane.queries
        n_outer, n_inner = (self.rows, self.columns) if by_rows else (self.columns, self.rows)
        cell = min(self.x[1] - self.x[0], self.y[1] - self.y[0])
        number, before = 0, None
        for outer in range(n_outer):
            inner = [j for j in range(n_inner) if self._kind(outer, j, by_rows) != DEAD]
            if self.plane.outer.parallel:
                number, before = 0, None
            if cell >= NUMBERED:
                for j in inner:
                    number += 1
                    x, y = self._middle(outer, j, by_rows)
                    if not self._has_room(outer, j, by_rows):
                        continue
                    self.parts.append(f'<text class="number" x="{x:.1f}" y="{y + 4:.1f}">{number}</text>')
            elif inner and outer < ARROWS:
                start, end = self._middle(outer, inner[0], by_rows), self._middle(outer, inner[-1], by_rows)
                if before is not None:
                    self._line(before, start, "way back")
                self._line(start, end, "way")
                before = end

    def _kind(self, outer: int, inner: int, by_rows: bool) -> str:
        return self.plane.kinds[outer][inner] if by_rows else self.plane.kinds[inner][outer]

    def _middle(self, outer: int, inner: int, by_rows: bool) -> tuple[float, float]:
        i, j = (outer, inner) if by_rows else (inner, outer)
        return (self.x[j] + self.x[j + 1]) / 2, (self.y[i] + self.y[i + 1]) / 2

    def _has_room(self, outer: int, inner: int, by_rows: bool) -> bool:
        i, j = (outer, inner) if by_rows else (inner, outer)
        return self.y[i + 1] - self.y[i] >= NUMBER_HEIGHT and self.x[j + 1] - self.x[j] >= NUMBER_HEIGHT

    def _line(self, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
        self.parts.append(
            f'<line class="{kind}" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
            'marker-end="url(#head)"/>'
        )

    def _labels(self) -> None:
        left, top = self.x[0], self.y[0]
        self._text(left, 14, f"keys → {self._loop(self.plane.keys)}", "start")
        if self.columns < self.plane.keys.tiles:
            self._text(self.x[-1], 30, f"first {self.columns} tiles", "end")
        else:
            self._text(self.x[-1], top - 8, str(self.plane.keys.extent), "end", "small")
        self._text(left, top - 8, "0", "start", "small")
        for line, text in enumerate(("queries ↓", *self._loop(self.plane.queries).split(", "))):
            self._text(0, top + 12 + 15 * line, text, "start", "label" if not line else "small")
        end = str(self.plane.queries.extent) if self.rows == self.plane.queries.tiles else f"first {self.rows} tiles"
        self._text(left - 6, self.y[-1], end, "end", "small")

    def _loop(self, axis: Axis) -> str:
        if axis.place is None:
            return "not tiled"
        return f"loop {axis.place + 1}, by {axis.tile}" + (", in parallel" if axis.parallel else "")

    def _text(self, x: float, y: float, text: str, anchor: str, kind: str = "label") -> None:
        self.parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'
        )
