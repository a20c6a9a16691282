"""Measure ignis beside other queues, and make the table and the picture of docs/performance.md.

    python -m benchmarks.peers [--scale small] [--only tasks …] [--peers redis …] [--fresh]

Each measurement is written to out/bench/SCALE.jsonl. A run that was interrupted continues there,
unless --fresh is given. What is missing is downloaded into a folder of the user's cache, and what
cannot be had is named in the table. The table and the picture are written to out/bench, and with
--publish into docs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from benchmarks.peers import report
from benchmarks.peers.results import Results
from benchmarks.peers.runner import run
from benchmarks.peers.workload import SCALES
from benchmarks.peers.workloads import WORKLOADS

_ROOT = Path(__file__).parents[2]


def main() -> None:
    """Measure, then write table and picture."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--scale", choices=SCALES, default="full")
    arguments.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    arguments.add_argument("--peers", nargs="+", default=[], help="parts of their names")
    arguments.add_argument("--fresh", action="store_true", help="forget what was measured")
    arguments.add_argument("--report", action="store_true", help="measure nothing")
    arguments.add_argument("--publish", action="store_true", help="write into docs")
    arguments.add_argument("--folder", type=Path, default=_ROOT / "out" / "bench")
    given = arguments.parse_args()
    scale = SCALES[given.scale]
    folder = given.folder.resolve()
    path = folder / f"{scale.name}.jsonl"
    if given.fresh:
        path.unlink(missing_ok=True)
    results = Results(path)
    console = Console()
    if not given.report:
        workloads = [WORKLOADS[name]() for name in given.only]
        run(workloads, given.peers, scale, results, folder, console)
    for written in report.write(results.rows, scale, folder):
        console.print(f"written: {written}")
    if given.publish:
        report.publish(results.rows, scale, _ROOT / "docs")


if __name__ == "__main__":
    main()
