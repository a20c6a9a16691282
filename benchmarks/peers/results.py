"""Measurements, as lines of JSON in a file that a later run continues."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a workload has measured once for one peer; times are in milliseconds."""

    #: What was measured of the case, such as "produce".
    measure: str
    #: Messages a second.
    rate: float | None = None
    p50: float | None = None
    p99: float | None = None
    worst: float | None = None
    #: Percent of one core.
    cpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the file."""

    workload: str
    case: str
    peer: str
    round: int
    conditions: str
    #: Why there is no result; empty if there is one.
    missing: str = ""
    #: Percent of the machine that other programs used just before.
    beside: float = 0.0
    result: Result | None = None

    @property
    def turn(self) -> tuple[str, str, str, int]:
        """What need not be measured again."""
        return self.workload, self.case, self.peer, self.round


class Results:
    """
    The rows in a file.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = list(read(path))
        # What was missing or has failed is tried again.
        self._turns = {row.turn for row in self.rows if row.result is not None}

    def __contains__(self, turn: object) -> bool:
        return turn in self._turns

    def add(self, rows: Iterable[Row]) -> None:
        """Append the rows of one turn, all at once: an interrupted turn leaves none."""
        new = list(rows)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = self._path.read_text() if self._path.exists() else ""
        with self._path.open("a") as file:
            if whole and not whole.endswith("\n"):
                file.write("\n")
            file.write("".join(json.dumps(asdict(row)) + "\n" for row in new))
        self.rows += new
        self._turns.update(row.turn for row in new if row.result is not None)


def read(path: Path) -> Iterable[Row]:
    """Return the rows of a file, none if there is no file; a torn last line is left out."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            fields = json.loads(line)
        except json.JSONDecodeError:
            continue
        found = fields.pop("result")
        yield Row(**fields, result=None if found is None else Result(**found))
