"""The style and the script of the report page: plain CSS and JavaScript, nothing from elsewhere."""

COLOURS = """
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --fg: #1c2330; --soft: #5d6878; --line: #dfe3ea;
  --accent: #2f6fdd; --good: #18794e; --bad: #c62a2f; --warn: #9a6700; --live: #bfe3cf; --masked: #f8dca0;
  --dead: #e3e6ec; --plain: #c9dcfa; --op: #7a3fb5; --value: #1668a8; --type: #0f766e; --number: #a0560b;
  --comment: #74808f; --string: #2b7a2b; --keyword: #b02a5b }
@media (prefers-color-scheme: dark) { :root { --bg: #14171c; --card: #1c2027; --fg: #e2e6ec; --soft: #98a3b3;
  --line: #313742; --accent: #76a7ff; --good: #57c78d; --bad: #ff7b80; --warn: #e3b341; --live: #24573c;
  --masked: #6b5420; --dead: #262b34; --plain: #2a4673; --op: #cfa3ff; --value: #7cc0ff; --type: #5fd0c0;
  --number: #f0ab6a; --comment: #7f8b9b; --string: #8fd48f; --keyword: #ff8fb8 } }
"""

PLANE = """
svg.plane { max-width: 100%; height: auto } .tile.live { fill: var(--live) } .tile.masked { fill: var(--masked) }
.tile.dead { fill: var(--dead) } .tile.plain { fill: var(--plain) } .grid { stroke: var(--card); stroke-width: 1.2;
  fill: none } svg text { fill: var(--fg); font: 13px system-ui, "DejaVu Sans", sans-serif } svg text.small {
  fill: var(--soft); font-size: 11.5px } svg text.number { font-size: 11px; text-anchor: middle } .way { stroke:
  var(--fg); stroke-width: 1.3 } .back { stroke-dasharray: 3 3 } .arrowhead { fill: var(--fg) }
"""

STYLE = (
    COLOURS
    + PLANE
    + """\
* { box-sizing: border-box }
body { margin: 0; background: var(--bg); color: var(--fg); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif }
header, main { max-width: 1500px; margin: 0 auto; padding: 0 24px }
header { padding-top: 26px } h1 { font-size: 24px; margin: 0 } h2 { font-size: 17px; margin: 0 0 10px }
h3 { font-size: 15px; margin: 0 0 6px } .soft, figcaption { color: var(--soft) } .place { overflow-wrap: anywhere }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin: 16px 0 }
ol { margin: 4px 0 12px; padding-left: 24px }
p { margin: 4px 0 12px } ul { margin: 4px 0; padding-left: 20px } li { margin: 2px 0 }
.chips { display: flex; flex-wrap: wrap; gap: 8px; margin: 12px 0 0 } .chip { border: 1px solid var(--line);
  background: var(--card); border-radius: 99px; padding: 2px 12px } .good { color: var(--good) }
.bad { color: var(--bad) }
.warn { color: var(--warn) } b.good, b.bad { font-weight: 600 }
.found { display: grid; grid-template-columns: minmax(300px, 1fr) minmax(320px, auto); gap: 28px; align-items: start }
.found + .found { border-top: 1px solid var(--line); margin-top: 18px; padding-top: 18px }
@media (max-width: 820px) { .found { grid-template-columns: 1fr } }
figure { margin: 0 } figcaption { font-size: 13px; max-width: 520px; margin-top: 6px }
table { border-collapse: collapse } th { text-align: left; font-weight: 500; color: var(--soft); font-size: 13px }
th, td { padding: 4px 18px 4px 0; border-bottom: 1px solid var(--line) } .n { text-align: right;
  font-variant-numeric: tabular-nums } code, pre, .ir { font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 16px }
.two section { margin: 0 }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 4px 12px; align-items: center }
.bar { height: 12px; border-radius: 3px; background: var(--accent); min-width: 1px } details { margin-top: 12px }
summary { cursor: pointer; color: var(--soft) }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; margin-top: 8px } .legend i { display:
  inline-block; width: 13px; height: 13px; border-radius: 3px; margin-right: 6px; vertical-align: -2px }
.panes { display: grid; grid-template-columns: 1fr 1fr; gap: 14px } @media (max-width: 900px) { .panes {
  grid-template-columns: 1fr } } .pane { min-width: 0 } .tabs { display: flex; flex-wrap: wrap; gap: 4px;
  margin-bottom: 8px } .tabs button { font: inherit; font-size: 13px; color: var(--soft); background: none; border: 1px
  solid var(--line); border-radius: 6px; padding: 2px 10px; cursor: pointer } .tabs button[aria-selected=true] { color:
  var(--card); background: var(--accent); border-color: var(--accent) }
.ir { border: 1px solid var(--line); border-radius: 6px; overflow: auto; height: 72vh; counter-reset: line; tab-size: 2;
  padding: 8px 0; background: var(--bg) } .ir div { counter-increment: line; white-space: pre; padding-right: 12px;
  width: max-content; min-width: 100% } .ir div::before { content: counter(line); display: inline-block; width: 4.2em;
  padding-right: 1.2em; text-align: right; color: var(--comment); opacity: .75 }
.ir div:hover { background: var(--dead) }
.o { color: var(--op) } .v { color: var(--value) } .t { color: var(--type) } .d { color: var(--number) }
.c { color: var(--comment) } .s { color: var(--string) } .k { color: var(--keyword) }
"""
)

SCRIPT = r"""
"use strict";
const levels = JSON.parse(document.getElementById("levels").textContent);
const token = new RegExp([
  "(\\/\\/.*$)", '("(?:[^"\\\\]|\\\\.)*")', "([%^][\\w$.-]+(?:#\\d+)?)", "([@#][\\w$.-]+)",
  "((?:tensor|memref|vector)<[^<>]*>|![\\w.]+|\\b(?:b?f\\d+\\w*|i\\d+|index)\\b)",
  "\\b((?:[a-z]\\w*\\.)+[\\w.]+)\\b", "\\b(module|ins|outs|iter_args|step|to|return|dense|attributes)\\b",
  "((?<![\\w%])-?(?:0x[0-9A-Fa-f]+|\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?)\\b)"].join("|"), "g");
const kinds = ["c", "s", "v", "k", "t", "o", "k", "d"];
const MOST_COLOURED = 12000;
function coloured(text) {
  const line = document.createElement("div");
  let at = 0;
  for (const found of text.matchAll(token)) {
    line.append(text.slice(at, found.index));
    const span = document.createElement("span");
    span.className = kinds[found.slice(1).findIndex(group => group !== undefined)];
    span.textContent = found[0];
    line.append(span);
    at = found.index + found[0].length;
  }
  line.append(text.slice(at) || (at ? "" : " "));
  return line;
}
function plain(text) {
  const line = document.createElement("div");
  line.textContent = text || " ";
  return line;
}
function show(pane, number) {
  const lines = levels[number][1].replace(/\n$/, "").split("\n");
  const make = lines.length > MOST_COLOURED ? plain : coloured;
  const ir = pane.querySelector(".ir");
  ir.replaceChildren(...lines.map(make));
  ir.scrollTop = 0;
  pane.querySelectorAll("button").forEach((button, i) => button.setAttribute("aria-selected", i === number));
}
document.querySelectorAll(".pane").forEach((pane, which) => {
  const tabs = pane.querySelector(".tabs");
  levels.forEach(([name, text], i) => {
    const button = document.createElement("button");
    button.textContent = name;
    button.title = text.split("\n").length + " lines";
    button.setAttribute("role", "tab");
    button.onclick = () => show(pane, i);
    tabs.append(button);
  });
  const fused = levels.findIndex(([name]) => name.endsWith("fused"));
  show(pane, which ? (fused > 0 ? fused : levels.length - 1) : 0);
});
"""
