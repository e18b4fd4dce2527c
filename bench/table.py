"""Prints the table of the README: every case of ``cases.txt``, measured here, as markdown.

    make bench                                                    # all cases, the peers that are installed
    python bench/table.py --threads 2 --compare torch --only decode
    python bench/table.py --target nvidia                         # on a GPU, the cases of gpu_cases.txt

Options that are not its own go to every case, as ``attn-bench`` has them (--rounds, --seconds, …).
"""

import argparse
import dataclasses
import pathlib
import shlex
import sys

from attn_opt.compiler.bench import table
from attn_opt.compiler.bench.latency import Latency
from attn_opt.compiler.bench.measure import measure
from attn_opt.compiler.tools.attn_bench import Bar
from attn_opt.compiler.tools.attn_bench_options import parse_options
from attn_opt.dialects.diagnostic import DiagnosedError

CASES = {"cpu": "cases.txt", "nvidia": "gpu_cases.txt"}
PEERS = {"cpu": "torch,onnxruntime", "nvidia": "torch-cudnn,torch-flash,flex,flash-attn-4"}


def main() -> int:
    parser = argparse.ArgumentParser(
        "bench/table.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", metavar="N", type=int, default=1, help="default: 1")
    parser.add_argument("--target", default="cpu", choices=list(CASES), help="default: cpu")
    parser.add_argument("--compare", metavar="PEER,…", help=f"default: {PEERS['cpu']}; on a GPU {PEERS['nvidia']}")
    parser.add_argument("--only", metavar="TEXT", default="", help="the cases whose name holds this text")
    found, rest = parser.parse_known_args()
    compare = PEERS[found.target] if found.compare is None else found.compare
    common = ["--threads", str(found.threads), "--target", found.target, "--compare", compare, *rest]
    rows, failed = [], 0
    try:
        cases = []
        file = pathlib.Path(__file__).with_name(CASES[found.target])
        for line in file.read_text(encoding="utf-8").splitlines():
            name, _, options = line.partition("|")
            if options and found.only in name:
                cases.append((name.strip(), parse_options([*shlex.split(options), *common])))
    except DiagnosedError as error:
        print(error, file=sys.stderr)
        return 1
    bar = Bar(max(len(cases), 1))
    for name, options in cases:
        measured = measure(
            options.cases[0][1],
            options.compare,
            dataclasses.replace(options.measuring, with_roofs=True),
            threads=found.threads,
            progress=lambda what, name=name: bar(f"{name}: {what}"),
        )
        bar.step()
        bar.clear()
        rows.append((name, measured))
        if not measured.ours.passed:
            failed += 1
            print(f"{name}: {measured.ours.failed or f'error {measured.ours.error}'}", file=sys.stderr)
    peers = [peer for peer in options.compare if any(r.times for _, m in rows for r in m.results if r.name == peer)]
    print("\n".join(table.markdown(rows, peers)))
    said = [note for note in table.notes([m for _, m in rows]) if "not installed" in note or "this machine" in note]
    print("\n" + "\n".join(said))
    if cases and found.target == "cpu":
        print(f"{cases[0][0]}: {table.latencies(Latency.of(cases[0][1].cases[0][1]))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
