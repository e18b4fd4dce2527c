"""The report of ``--report out.html``: one page that needs nothing else, on what became of a module; ``out.svg`` is
its picture of the tiles alone.

What was found and fused, with a picture of the tiles; what was left and why; the check and the times; the levels of
the IR side by side. All text from outside is escaped here, or by the page's script.
"""

import dataclasses
import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from ...dialects.mlir import ir
from .. import explain
from ..diagnostics import Listener, file_error, user_error
from ..ir_printing import PrintOptions
from ..pass_manager import Hook, Stage
from ..pipelines import STAGE_AFTER
from ..recording import Recorder
from . import tile_picture
from .report_style import SCRIPT, STYLE

FEW_PASSES = 12  # of so few, the IR after each is a level


@dataclasses.dataclass
class Report:
    """What the page shows. `rows`, `bench`: tables of head and cells; `shapes`: those of the arguments, where known."""

    title: str
    subtitle: str
    record: explain.Record
    levels: Sequence[tuple[str, str]]
    shapes: Sequence[Sequence[int]] | None = None
    check: Sequence[dict[str, str]] = ()
    bench: dict[str, str] = dataclasses.field(default_factory=dict)
    passed: bool | None = None

    def write(self, path: str) -> None:
        """The page, or where the file is an .svg the picture of the tiles alone."""
        text = _picture(self, path) if path.endswith(".svg") else page(self)
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise file_error(path, "written", error) from None


class Levels(Hook):
    """Keeps the text of the module where a level of the IR ends, or after each pass where there are few."""

    def __init__(self, text: str, options: PrintOptions, n_passes: int):
        self.options = options
        self.each = n_passes <= FEW_PASSES
        self.texts = [("input", text)]

    def after(self, stage: Stage, module: ir.Operation, failed: bool) -> None:
        level = STAGE_AFTER.get(stage.name)
        if self.each or level is not None or failed:
            name = stage.name if self.each or level is None else level
            name += " (failed)" if failed else ""
            self.texts = [one for one in self.texts if one[0] != name or self.each]
            self.texts.append((name, self.options.text(module)))


class Watch:
    """Gathers what a report shows, from one module after the other."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.levels: list[Levels] = []

    def module(
        self, text: str, n_passes: int, options: PrintOptions, listener: Listener, hooks: list[Hook]
    ) -> tuple[Listener, list[Hook]]:
        """The listener and the hooks for the next module, which is `text`."""
        levels = Levels(text, options, n_passes)
        self.levels.append(levels)
        return self.recorder.listener(listener), [self.recorder, levels, *hooks]

    def report(self, name: str, stages: Sequence[Stage]) -> Report:
        """The report on what was seen so far."""
        texts = []
        for number, levels in enumerate(self.levels, 1):
            prefix = f"{number}: " if len(self.levels) > 1 else ""
            texts += [(prefix + level, text) for level, text in levels.texts]
        first = ", ".join(stage.name for stage in stages[:FEW_PASSES])
        more = f" and {len(stages) - FEW_PASSES} more" if len(stages) > FEW_PASSES else ""
        return Report(name, f"passes: {first or 'none'}{more}", self.recorder.record, texts)


def _picture(report: Report, path: str) -> str:
    planes = [tile_picture.plane_of(one, report.shapes) for one in explain.fused(report.record)]
    if not any(planes):
        raise user_error(f"no attention was fused, so there are no tiles to draw in '{path}'")
    return tile_picture.file([plane for plane in planes if plane])


def page(report: Report) -> str:
    """The page as HTML."""
    body = [_found(report), _lists(report.record), _numbers(report), _time(report.record), _levels()]
    levels = json.dumps([list(one) for one in report.levels]).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_e(report.title)} – attn-opt</title><style>{STYLE}</style></head>\n<body>"
        f"<header><h1>{_e(report.title)}</h1><div class=soft>{_e(report.subtitle)}</div>{_chips(report)}</header>\n"
        f"<main>{''.join(body)}</main>\n"
        f'<script type="application/json" id="levels">{levels}</script>\n<script>{SCRIPT}</script></body></html>\n'
    )


def _e(text: Any) -> str:
    return html.escape(str(text))


def _chips(report: Report) -> str:
    record = report.record
    number = sum(one["details"]["attention"] for one in explain.fused(record))
    chips = [_chip(f"{number} attention{'s' * (number != 1)} fused")]
    if n_left := len(explain.left(record)):
        chips.append(_chip(f"{n_left} left", "warn"))
    if n_warnings := len(explain.warnings(record)):
        chips.append(_chip(f"{n_warnings} warning{'s' * (n_warnings > 1)}", "warn"))
    if n_errors := len(_errors(record)):
        chips.append(_chip(f"{n_errors} error{'s' * (n_errors > 1)}", "bad"))
    if report.passed is not None:
        chips.append(_chip("agrees with float64" if report.passed else "differs from float64", _verdict(report.passed)))
    chips += [_chip(f"{name} {value}") for name, value in report.bench.items() if name in ("time", "speed")]
    return f"<div class=chips>{''.join(chips)}</div>"


def _chip(text: str, kind: str = "") -> str:
    return f'<span class="chip {kind}">{_e(text)}</span>'


def _verdict(passed: bool) -> str:
    return "good" if passed else "bad"


def _section(title: str, *content: str) -> str:
    return f"<section><h2>{_e(title)}</h2>{''.join(content)}</section>\n"


def _found(report: Report) -> str:
    found = explain.fused(report.record)
    if not found:
        return _section("Found and fused", "<p class=soft>Nothing was fused.</p>")
    return _section("Found and fused", *(_attention(one, report.shapes) for one in found))


def _attention(one: dict[str, Any], shapes: Sequence[Sequence[int]] | None) -> str:
    details = one["details"]
    parallel = explain.parallel(one)
    loop_items = (
        f"<li>{_e(loop['axis'])}: {_e(explain.extent(loop))} by {loop['tile']}{', in parallel' * (i in parallel)}</li>"
        for i, loop in enumerate(tile_picture.with_sizes(one, shapes)["details"]["loops"])
    )
    what = "Attention" if details["attention"] else "Loop nest"
    lines = "".join(loop_items)
    loops = f"<h3>Loops, from outer to inner</h3><ol>{lines}</ol>" if lines else "<p>No loops.</p>"
    inside = ", ".join(f"<code>{_e(name)}</code>" for name in details["fused"]) or "nothing"
    notes = "".join(
        f"<li>{_e(e['message'])} <span class=soft>{_e(e['pass'])}</span></li>"
        for e in one["also"]
        if e["details"].get("kind") != "parallel"
    )
    text = f"<h3>{what} at <span class=place>{_e(explain.at(one))}</span></h3>{loops}"
    text += f"<h3>Fused into them</h3><p>{inside}</p>" + (f"<h3>Then</h3><ul>{notes}</ul>" if notes else "")
    return f"<div class=found><div>{text}</div>{_figure(one, shapes)}</div>"


def _figure(one: dict[str, Any], shapes: Sequence[Sequence[int]] | None) -> str:
    plane = tile_picture.plane_of(one, shapes)
    if plane is None:
        return ""
    colours = "".join(
        f'<span><i style="background:var(--{kind})"></i>{_e(text)}</span>'
        for kind, text in tile_picture.legend(plane).items()
    )
    caption = f"<figcaption>{_e(tile_picture.caption(plane))}</figcaption>"
    return f"<figure>{tile_picture.picture(plane)}<div class=legend>{colours}</div>{caption}</figure>"


def _errors(record: explain.Record) -> list[dict[str, Any]]:
    return [entry for entry in record["entries"] if entry["severity"] == "error"]


def _lists(record: explain.Record) -> str:
    lists = (
        ("Errors", "bad", _errors(record)),
        ("Left, and why", "", explain.left(record)),
        ("Warnings", "warn", explain.warnings(record)),
        ("Also", "", explain.others(record)),
    )
    return "".join(_section(title, _list(entries, kind)) for title, kind, entries in lists if entries)


def _list(entries: Iterable[dict[str, Any]], kind: str) -> str:
    items = (
        f'<li><span class="place {kind}">{_e(explain.at(e))}</span>: '
        f"{_e(explain.reason_left(e['message']) or e['message'])} <span class=soft>{_e(e['pass'])}</span></li>"
        for e in entries
    )
    return f"<ul>{''.join(items)}</ul>"


def _numbers(report: Report) -> str:
    parts = []
    if report.check:
        parts.append(_section("Check against float64", _table(report.check)))
    if report.bench:
        rows = "".join(f"<tr><th>{_e(name)}</th><td>{_e(value)}</td></tr>" for name, value in report.bench.items())
        parts.append(_section("Speed", f"<table>{rows}</table>"))
    return f"<div class=two>{''.join(parts)}</div>" if parts else ""


def _table(rows: Sequence[dict[str, str]]) -> str:
    head = "".join(f"<th>{_e(name)}</th>" for name in rows[0])
    lines = "".join(f"<tr>{''.join(_cell(value) for value in row.values())}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{lines}</table>"


def _cell(value: str) -> str:
    if value in ("PASS", "FAIL"):
        return f'<td><b class="{_verdict(value == "PASS")}">{value}</b></td>'
    return f"<td>{_e(value)}</td>"


def _time(record: explain.Record) -> str:
    """Bars: one per level of the IR, and inside one per pass."""
    seconds: list[tuple[str, float]] = [(name, value) for name, value in record["seconds"]]
    if not seconds:
        return ""
    total = sum(value for _, value in seconds)
    ends = [i for i, (name, _) in enumerate(seconds) if name in STAGE_AFTER]
    groups: dict[str, float] = {}
    for i, (name, value) in enumerate(seconds):
        end = next((j for j in ends if j >= i), None)
        level = STAGE_AFTER[seconds[end][0]] if end is not None else name
        groups[level] = groups.get(level, 0.0) + value
    parts = [_bars(groups.items())] if len(groups) < len(seconds) else []
    passes = _bars(seconds)
    parts.append(f"<details><summary>by pass</summary>{passes}</details>" if parts else passes)
    return _section(f"Time to compile: {_time_text(total)}", *parts)


def _bars(items: Iterable[tuple[str, float]]) -> str:
    items = list(items)
    longest = max(value for _, value in items) or 1e-9
    rows = (
        f'<span>{_e(name)}</span><span><div class=bar style="width:{100 * value / longest:.1f}%"></div></span>'
        f"<span class=n>{_time_text(value)}</span>"
        for name, value in items
    )
    return f"<div class=bars>{''.join(rows)}</div>"


def _time_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _levels() -> str:
    pane = "<div class=pane><div class=tabs role=tablist></div><div class=ir tabindex=0></div></div>"
    return _section("Levels of the IR", f"<div class=panes>{pane}{pane}</div>")
