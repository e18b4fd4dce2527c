"""Prints the table of the README: every case of ``cases.txt``, measured here, as markdown, row by row.

    make bench                                                    # all cases, the peers that are installed
    python bench/table.py --threads 2 --compare torch --only decode
    python bench/table.py --plot table.svg                        # the same, and a picture of it
    python bench/table.py --target nvidia                         # on a GPU, the cases of gpu_cases.txt

    python bench/table.py --target nvidia --kept FOLDER --stop-before-timing   # anywhere: compiles all kernels
    python bench/table.py --target nvidia --kept FOLDER                        # on the GPU: takes these

Options that are not its own go to every case, as ``attn-bench`` has them (--rounds, --seconds, --autotune, …). With
``--kept`` each row is written to the folder as soon as it is measured, and not measured again the next time.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile
import time

from attn_opt.compiler.api import compile
from attn_opt.compiler.bench import gpu, plot, reference, table
from attn_opt.compiler.bench.cases import read_cases
from attn_opt.compiler.bench.latency import Latency
from attn_opt.compiler.bench.measure import Measured, measure
from attn_opt.compiler.precompile import Job, precompile
from attn_opt.compiler.tools.attn_bench import SweepProgress, tune
from attn_opt.compiler.tools.attn_bench_options import Options, picture
from attn_opt.dialects.diagnostic import DiagnosedError

CASES = {"cpu": "cases.txt", "nvidia": "gpu_cases.txt"}
PEERS = {"cpu": "torch,onnxruntime", "nvidia": "torch-cudnn,torch-flash,flex,flash-attn-4"}
LIMIT = 60.0  # seconds for a case on a GPU


def main() -> int:
    parser = argparse.ArgumentParser(
        "bench/table.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", metavar="N", type=int, default=1, help="default: 1")
    parser.add_argument("--target", default="cpu", choices=list(CASES), help="default: cpu")
    parser.add_argument("--compare", metavar="PEER,…", help=f"default: {PEERS['cpu']}; on a GPU {PEERS['nvidia']}")
    parser.add_argument("--only", metavar="TEXT", default="", help="the cases whose name holds this text")
    parser.add_argument("--mha", action="store_true", help="the cases of plain attention alone, full and causal")
    parser.add_argument("--kept", metavar="FOLDER", help="rows, and for a GPU kernels and right results, stay here")
    parser.add_argument("--limit", metavar="S", type=float, default=LIMIT, help=f"of a case on a GPU; default: {LIMIT}")
    parser.add_argument("--plot", metavar="FILE", type=picture, help="draw the shares of the roof that all reach")
    parser.add_argument("--stop-before-timing", action="store_true", help="only compile; needs no GPU")
    found, rest = parser.parse_known_args()
    compare = PEERS[found.target] if found.compare is None else found.compare
    common = ["--threads", str(found.threads), "--target", found.target, "--compare", compare, *rest]
    try:
        if found.plot:
            plot.check()
        cases = read_cases(pathlib.Path(__file__).with_name(CASES[found.target]), common, found.only)
    except DiagnosedError as error:
        print(error, file=sys.stderr)
        return 1
    cases = [(name, options, known) for name, options, known in cases if not found.mha or _is_plain(options)]
    with tempfile.TemporaryDirectory(prefix="attn-bench-") as folder:
        run = Run(found, pathlib.Path(found.kept or folder))
        if found.target == "nvidia":
            run.compile([options for _, options, _ in cases])
            if found.stop_before_timing:
                return 0
            run.prepare([options for _, options, _ in cases])
        return run.measure([(name, options) for name, options, _ in cases])


def _is_plain(options: Options) -> bool:
    graph = options.cases[0][1]
    more = graph.bias or graph.softcap or graph.alibi or graph.lengths or graph.mask or graph.kv != graph.heads
    layouts = (graph.input_layout, graph.output_layout) == ("bhsd", "bhsd")
    square = graph.queries == graph.keys and graph.queries % 64 == 0
    return not more and layouts and square and graph.element != "f32" and graph.window[0] is None


class Run:
    """`kept`: where files stay."""

    def __init__(self, found: argparse.Namespace, kept: pathlib.Path):
        self.found, self.kept = found, kept
        self.start = time.monotonic()
        kept.mkdir(parents=True, exist_ok=True)

    def compile(self, cases: list[Options]) -> None:
        """All kernels, as many at a time as there are processors, but those that are there. One that fails, does so
        again when it is measured."""
        missing = []
        for options in cases:
            graph, chosen = options.cases[0][1], options.measuring.options
            file = self.kept / gpu.kernel_file(graph, chosen)
            if not file.exists() and not options.autotune:
                missing.append((graph.text(), chosen, file))
        if not missing:
            return
        arch = {"arch": "sm_90a"} if self.found.stop_before_timing else {}
        jobs = [Job(text, "nvidia", {**arch, **chosen}) for text, chosen, _ in missing]
        failures = precompile(jobs)
        for job, (text, _, file), failed in zip(jobs, missing, failures, strict=True):
            if failed is None:
                compile(text, target="nvidia", **job.options).save(file)
            else:
                print(f"not compiled: {failed}", file=sys.stderr)
        self._say(f"compiled {len(missing) - sum(map(bool, failures))} kernels")

    def prepare(self, cases: list[Options]) -> None:
        """The right results of all cases."""
        wanted = [(o.cases[0][1], o.measuring.init, o.measuring.seed) for o in cases if o.measuring.validate]
        reference.prepare(wanted, str(self.kept))
        self._say("right results computed")

    def measure(self, cases: list[tuple[str, Options]]) -> int:
        """The table, row by row; the exit status."""
        if not cases:
            return 0
        peers = cases[0][1].compare
        bar, failed, ratios, shares, last = SweepProgress(len(cases)), 0, [], {}, None
        print("\n".join(table.markdown_head(self.found.target, peers)), flush=True)
        with gpu.Process() as process:
            for name, options in cases:
                row = self._known(name)
                if row is None:
                    last = self._measured(name, options, bar, process)
                    row = self._row(name, last, peers)
                bar.step()
                bar.clear()
                print(row["line"], flush=True)
                ratios.append(row["ratios"])
                results = row["measured"]["results"]
                shares[name] = {r["name"]: r["fraction_of_roof"] for r in results if "fraction_of_roof" in r}
                failed += bool(row["failed"])
                for what in row["said"]:
                    print(f"{name}: {what}", file=sys.stderr, flush=True)
        print("\n" + "\n".join(table.summary(ratios)))
        if last is not None:
            print("\n".join(note for note in table.notes([last]) if "not installed" in note or "machine" in note))
        if self.found.target == "cpu":
            print(f"{cases[0][0]}: {table.latencies(Latency.of(cases[0][1].cases[0][1]))}")
        if self.found.plot:
            plot.draw_shares(self.found.plot, shares)
        self._say("done")
        return 1 if failed else 0

    def _measured(self, name: str, options: Options, bar: SweepProgress, process: gpu.Process) -> Measured:
        graph, how = options.cases[0][1], dataclasses.replace(options.measuring, with_roofs=True)
        if options.autotune:
            how, tried = tune(graph, how, self.found.threads, lambda what: bar(f"{name}: {what}"))
            print("\n".join([name, *tried]), file=sys.stderr)
        return measure(
            graph,
            options.compare,
            how,
            threads=self.found.threads,
            progress=lambda what: bar(f"{name}: {what}"),
            on_gpu=process,
            kept=str(self.kept) if self.found.target == "nvidia" else None,
            limit=self.found.limit,
        )

    def _row(self, name: str, measured: Measured, peers: list[str]) -> dict:
        """What is kept of a case."""
        ours = measured.ours
        ratios = {r.name: ratio for r in measured.results[1:] if (ratio := measured.ratio(r)) is not None}
        failed = not ours.passed and (ours.failed or ours.skipped or f"error {ours.error}")
        said = [f"attn-opt: {failed}"] if failed else []
        said += [
            f"{r.name}: {r.failed or f'error {r.error:.1e}'}"
            for r in measured.results[1:]
            if r.failed or r.passed is False
        ]
        row = {
            "case": name,
            "line": table.markdown_row(name, measured, peers),
            "ratios": ratios,
            "failed": failed or "",
        }
        row |= {"said": said, "peers": peers, "measured": measured.plain()}
        if not failed:
            with self._rows.open("a") as file:
                print(json.dumps(row), file=file)
        return row

    @property
    def _rows(self) -> pathlib.Path:
        return self.kept / "rows.jsonl"

    def _known(self, name: str) -> dict | None:
        """A row that was measured before, with the same peers."""
        if not self.found.kept or not self._rows.exists():
            return None
        peers = self.found.compare.split(",") if self.found.compare else PEERS[self.found.target].split(",")
        rows = [json.loads(line) for line in self._rows.read_text().splitlines()]
        return next((row for row in reversed(rows) if row["case"] == name and row["peers"] == peers), None)

    def _say(self, what: str) -> None:
        print(f"[{time.monotonic() - self.start:.0f} s] {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
