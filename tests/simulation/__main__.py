"""Run seeds of the simulation: ``python -m tests.simulation --seeds 10000`` or ``--seed N``."""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time
from collections import Counter

from tests.simulation import world
from tests.simulation.scenario import Report, run


def main() -> int:
    """Run the requested seeds; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed, and print its history")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--digests", action="store_true", help="print a digest of each history")
    given = parser.parse_args()
    # Restores are reported as warnings, seed by seed.
    logging.getLogger("queue_core").setLevel(logging.ERROR)
    one = given.seed is not None
    seeds = [given.seed] if one else range(given.first, given.first + given.seeds)
    totals: Counter[str] = Counter()
    failed = []
    begun = time.monotonic()
    with world.folder() as folder:
        for seed in seeds:
            report = run(seed, folder)
            if given.digests:
                digest = hashlib.sha256("\n".join(report.trace).encode()).hexdigest()
                print(seed, digest[:12], flush=True)
            totals.update(report.counts)
            if one:
                print("\n".join(report.trace))
            if report.wrong:
                failed.append(seed)
                print(told(report), flush=True)
                if given.stop:
                    break
    seconds = time.monotonic() - begun
    print(f"{len(seeds)} seeds in {seconds:.0f} s, {len(failed)} failed: {failed}")
    print(", ".join(f"{name} {count:,}" for name, count in sorted(totals.items())))
    return 1 if failed else 0


def told(report: Report) -> str:
    """Return the faults of a seed, and the command that runs it again."""
    wrong = "\n  ".join(report.wrong[:5])
    return f"seed {report.seed}: {wrong}\n  python -m tests.simulation --seed {report.seed}"


if __name__ == "__main__":
    sys.exit(main())
