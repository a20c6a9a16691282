"""``python -m tests.power [--each 4]``: what a failure of power leaves of a store; needs strace."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.power import recording
from tests.power.campaign import run


def main() -> int:
    """Run the campaign and print what it found."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--each", type=int, default=4, help="disks after each operation")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--share", type=float, default=1.0, help="of the disks, how many")
    given = arguments.parse_args()
    if recording.STRACE is None:
        print("strace is missing: install it first")
        return 2
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ignis-power-") as folder:
        found = run(Path(folder), given.each, given.seed, given.share)
    for text, (count, first) in found.faults.items():
        print(f"{count} times: {text}\n{first}")
    broken = sum(count for count, _ in found.faults.values())
    print(
        f"{found.operations} operations, {found.disks} different disks, {broken} with a broken "
        f"promise, {time.monotonic() - begun:.0f} s"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
