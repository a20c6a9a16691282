"""Make each mistake in a copy of the code, and see what finds it: ``python -m tests.mutants``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.mutants import MUTANTS, Mutant
from tests.tree import PACKAGES, ROOT

#: What a copy of the tree needs.
COPIED = (*PACKAGES, "tests", "benchmarks", "docs", "pyproject.toml")
#: Seconds for each finder; a mutant that hangs is found.
PATIENCE = 600.0
#: How a line of the table looks: the mutant, what found it, after how many seconds.
_LINE = "| {} | {} | {:.0f} |"


def main() -> int:
    """Print the table of mutants; return 1 if more than one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="seeds of the simulation for each")
    parser.add_argument("--only", default="", help="mutants whose names have this text")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first mutant")
    parser.add_argument("--control", action="store_true", help="run all on the code as it is too")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS[given.first - 1 :] if given.only in mutant.name]
    missed = 0
    print("| mutant | found by | seconds |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="ignis-mutant-") as made:
        folder = Path(made)
        _copy(folder)
        if given.control:
            everything = sorted({test for mutant in chosen for test in mutant.tests})
            begun = time.monotonic()
            found = found_by(folder, everything, given.seeds)
            assert found is None, f"the code as it is fails: {found}"
            print(_LINE.format("none", "nothing", time.monotonic() - begun), flush=True)
        for mutant in chosen:
            begun = time.monotonic()
            with _Made(mutant, folder):
                found = found_by(folder, list(mutant.tests), given.seeds)
            missed += found is None
            print(
                _LINE.format(mutant.name, found or "NOT FOUND", time.monotonic() - begun),
                flush=True,
            )
    print(f"\n{len(chosen) - missed} of {len(chosen)} found")
    return int(missed > 1)


def found_by(folder: Path, tests: list[str], seeds: int) -> str | None:
    """Return what finds a mutant first, the cheapest tried first; None if nothing does."""
    finders = {
        "a test": ["-m", "pytest", "-x", "-q", *tests],
        "the model": ["-m", "pytest", "-x", "-q", "tests/model"],
        "the simulation": ["-m", "tests.simulation", "--seeds", str(seeds), "--stop"],
    }
    for name, arguments in finders.items():
        output = _fails(folder, arguments)
        if output is not None:
            return f"{name}, {_named(output)}"
    return None


class _Made:
    """A mutant is made in the copy of the tree while the block runs."""

    def __init__(self, mutant: Mutant, folder: Path) -> None:
        self._mutant = mutant
        self._file = folder / mutant.file
        self._source = self._file.read_text()

    def __enter__(self) -> None:
        mutant = self._mutant
        assert self._source.count(mutant.old) == 1, f"{mutant.name}: the code has changed"
        self._file.write_text(self._source.replace(mutant.old, mutant.new))

    def __exit__(self, *_: object) -> None:
        self._file.write_text(self._source)


def _copy(folder: Path) -> None:
    without = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=without)
        else:
            shutil.copy(ROOT / name, folder / name)


def _named(output: list[str]) -> str:
    """Return the test or the seed that failed."""
    for line in output:
        # Not a line of the log that pytest repeats.
        if line.startswith(("FAILED tests", "ERROR tests")):
            return f"`{line.split()[1].split('[')[0]}`"
        if line.startswith("seed "):
            return line.split(":")[0]
    return "which hangs"


def _fails(folder: Path, arguments: list[str]) -> list[str] | None:
    """
    Return the output of a Python that fails or hangs; None if it succeeds.

    Both pytest and the simulation end with 1 if something failed. Tests that cannot run, for want
    of a file for example, have found nothing: they raise `AssertionError`.
    """
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return []
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines() if done.returncode else None


if __name__ == "__main__":
    sys.exit(main())
