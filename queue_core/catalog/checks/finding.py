"""A finding of a check: the broken invariant, its place, its time, and its remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from queue_core.values.schema import TIMESTAMP


class Remedy(StrEnum):
    """The repair of a finding."""

    #: The messages become damaged: they are never fired, and never forgotten.
    SET_APART = "set apart"
    #: The counters and pointers of a shard are computed from its slices.
    RECOUNT = "recount"
    #: The state of a file becomes what its segment says.
    RESTATE = "restate"
    #: The row is removed, because it belongs to no message.
    REMOVE = "remove"
    #: Nothing: a person must restore a backup.
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken invariant, at one place."""

    #: Its number, as docs/protocol.md lists them.
    invariant: str
    table: str
    #: The primary key of the row, or the location of a file.
    key: tuple[int | str, ...]
    #: The id of its queue; None if it concerns the store, or a queue that does not exist.
    queue_id: int | None
    problem: str
    remedy: Remedy = Remedy.NONE
    #: Microseconds: the row was last written then, so the damage is younger. None: unknown.
    since: int | None = None

    @property
    def place(self) -> tuple[str, str, tuple[int | str, ...]]:
        """The values that identify a finding."""
        return self.invariant, self.table, self.key


#: The columns of a report, with their descriptions in `StoreAdmin.fsck`.
FINDINGS = pa.schema(
    [
        pa.field("invariant", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("table", pa.string()),
        pa.field("row", pa.string()),
        pa.field("problem", pa.string()),
        pa.field("since", TIMESTAMP),
        pa.field("remedy", pa.string()),
        pa.field("repaired", pa.bool_()),
    ]
)


def report(
    findings: Iterable[Finding], names: dict[int, str], repaired: Iterable[Finding] = ()
) -> pa.Table:
    """Return findings as rows of `FINDINGS`; *repaired* are those that were repaired."""
    rows = [
        {
            "invariant": found.invariant,
            "queue": None if found.queue_id is None else names.get(found.queue_id),
            "table": found.table,
            "row": " ".join(map(str, found.key)),
            "problem": found.problem,
            "since": found.since if found.since is None or 0 <= found.since < 2**53 else None,
            "remedy": str(found.remedy),
            "repaired": mended,
        }
        for mended, group in ((True, repaired), (False, findings))
        for found in group
    ]
    return pa.Table.from_pylist(rows, schema=FINDINGS)
