"""Measure all figures of docs/performance.md and docs/scale.md again, on one commit.

    python -m benchmarks.pages [--only single trigger …] [--list]

Runs each script that the pages name, one after the other, and nothing beside it; on PostgreSQL too
where the pages have such figures. That takes some hours. What a script prints is shown and
kept in out/bench/pages/COMMIT, with the command, the date and the time that it took. A run that was
interrupted continues after the scripts that have ended. It ends with a table of them.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[1]
#: What to run, in the order of the pages. The option ``--folder`` gets that of the commit.
COMMANDS = (
    "ceiling",
    "verbs",
    "fsck",
    "selection",
    "loads",
    "group_commit",
    "group_commit --postgresql",
    "startup",
    "trigger",
    "trigger --postgresql",
    "latency",
    "retries",
    "retries --postgresql",
    "policies",
    "pool",
    "pool --postgresql",
    "handover",
    "objects",
    "console pages",
    "single",
    "single --postgresql",
    'pinned --minutes 10 --peer "ignis, PostgreSQL"',
    "output",
    "output --handler message",
    "routing",
    "log_readers --messages 4000000 --rounds 3",
    "timings",
    "compaction",
    "sizes",
    "sizes --postgresql",
    "growth",
    "contention slices",
    "contention shards",
    "contention consumers",
    "contention consumers --postgresql",
    "contention loads",
    "contention loads --postgresql",
    "contention idle",
    "contention idle --postgresql",
    "many_queues",
    "fairness",
    "limits",
    "limits --postgresql",
    "outage",
    "moves",
    "moves --postgresql",
    "peers --folder",
)


class Ended(NamedTuple):
    """A command that was run."""

    command: str
    #: When it began, in UTC.
    date: str
    seconds: float
    #: Its exit status.
    status: int


def run(command: str, path: Path) -> Ended:
    """Run a command; show what it prints, and write it to a file that appears once it has ended."""
    date, began = time.strftime("%Y-%m-%d %H:%M", time.gmtime()), time.monotonic()
    print(f"\n## {command}", flush=True)
    lines = []
    name, *options = shlex.split(command)
    if options == ["--folder"]:
        options.append(str(path.parent))
    words = [sys.executable, "-m", f"benchmarks.{name}", *options]
    with subprocess.Popen(words, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    ended = Ended(command, date, round(time.monotonic() - began, 1), process.returncode)
    path.write_text(json.dumps(ended._asdict()) + "\n" + "".join(lines))
    return ended


def read(path: Path) -> Ended | None:
    """Return the command whose output is in a file; None: it is to be run, or has failed."""
    if not path.exists():
        return None
    found = Ended(**json.loads(path.read_text().partition("\n")[0]))
    return found if found.status == 0 else None


def commit() -> str:
    """
    Return the commit of what is measured: the last that changed more than documents and tests.

    Raises `SystemExit` if the checkout has other changes.
    """

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=_ROOT, text=True).strip()

    if git("status", "--porcelain", "--untracked-files=no"):
        sys.exit("commit your changes first: the figures are to be those of one commit")
    left_out = (f":(exclude){each}" for each in ("*.md", "docs", "tests"))
    return git("log", "-1", "--format=%h", "--", ".", *left_out)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", help="the names of some scripts")
    parser.add_argument("--list", action="store_true", help="only show what has ended")
    given = parser.parse_args()
    folder = _ROOT / "out" / "bench" / "pages" / commit()
    folder.mkdir(parents=True, exist_ok=True)
    table = Table("command", "date", "seconds", "status", title=folder.name)
    for command in COMMANDS:
        path = folder / f"{re.sub('[^a-z0-9_]+', '-', command)}.txt"
        wanted = given.only is None or command.split()[0] in given.only
        found = read(path)
        if found is None and wanted and not given.list:
            found = run(command, path)
        row = ("", "", "") if found is None else map(str, found[1:])
        table.add_row(command, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
