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


#: The conditions that hold in every state of the catalog that a transaction can see.
INVARIANTS = {
    "I1": "the values of a row give its seal",
    "I2": "a slice is in a shard of a magazine of a queue",
    "I3": "a slice names at least one row, and counts its rows rightly",
    "I4": "the rows of a slice are in a segment of its queue",
    "I5": "a row of a segment is in at most one slice",
    "I6": "a place of a shard has at most one message",
    "I7": "the places of a slice are before the load pointer of its shard",
    "I8": "a ticket holds each fired slice, and no loaded one",
    "I9": "a slice was loaded when its segment was published, unless it was compacted",
    "I10": "a segment has a queue, and a schema that this queue has had",
    "I11": "a segment is either in a file or in the catalog, and its chunks cover its rows",
    "I12": "the ids of compacted messages belong to a segment",
    "I13": "a file is live exactly while a segment is in it",
    "I14": "the file of a segment exists, and is as long as its chunks need",
    "I15": "each chunk of a segment has its checksum (only with deep)",
    "I16": "each shard has its pointers and counters",
    "I17": "the messages that came into a shard are there, or were counted when they left",
    "I18": "the fired messages of a shard are in flight, came back, or were counted when they left",
    "I19": "the damaged messages of a shard are those that are set apart there",
    "I20": "no counter is negative, and no pointer is beyond the load pointer",
    "I21": "a ticket that holds messages is one that its consumer has had",
    "I22": "a ticket belongs to a consumer, and was planned wholly or not at all",
    "I23": "a consumer has acknowledged only tickets that it has had, and in a way that there is",
    "I24": (
        "no heartbeat, lease, waiter, begin of a task, state of a breaker, bucket of a limit or "
        "key is in the future"
    ),
    "I25": "an interest belongs to a consumer and to a queue",
    "I26": "publications, failures, reports and jobs belong to a queue, and can be read",
    "I27": "a queue has a name, settings and columns that can be read",
    "I28": "the storage is that of the store",
    "I29": "only messages of the sideline have a due time, which is a time",
    "I30": "a message is a suspect exactly if it was lost with its consumer",
}
