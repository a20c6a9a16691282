"""Make each mistake in a copy of the code, and see what finds it: ``python -m tests.mutants``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent
#: What a copy of the tree needs.
COPIED = ("queue_core", "ignis_source", "ignis_sink", "pyspark_ignis", "tests", "pyproject.toml")
#: Seconds for each of the two; a mutant that hangs is found.
PATIENCE = 300.0


def main() -> int:
    """Print a line for each mutant; return 1 if more than one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="seeds of the simulation for each")
    parser.add_argument("--only", default="", help="mutants whose names have this text")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if given.only in mutant.name]
    missed = 0
    for mutant in chosen:
        found = found_by(mutant, given.seeds)
        missed += found is None
        print(f"{mutant.name:<48} {found or 'NOT FOUND'}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return int(missed > 1)


def found_by(mutant: Mutant, seeds: int) -> str | None:
    """Return what finds a mutant; None if nothing does."""
    with tempfile.TemporaryDirectory(prefix="ignis-mutant-") as made:
        folder = Path(made)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        file = folder / mutant.file
        source = file.read_text()
        assert source.count(mutant.old) == 1, f"{mutant.name}: the code has changed"
        file.write_text(source.replace(mutant.old, mutant.new))
        simulation = ["-m", "tests.simulation", "--seeds", str(seeds), "--stop"]
        output = _fails(folder, simulation)
        if output is not None:
            seed = next((line for line in output if line.startswith("seed ")), "seed ?: hangs")
            return f"simulation, {seed[:90]}"
        output = _fails(folder, ["-m", "pytest", "-x", "-q", *mutant.tests])
        if output is not None:
            failed = (line for line in output if line.startswith(("FAILED", "ERROR")))
            return next(failed, "tests: hang")[:110]
        return None


def _fails(folder: Path, arguments: list[str]) -> list[str] | None:
    """Return the output of a Python that fails or hangs; None if it succeeds."""
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
    return None if done.returncode == 0 else done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
