"""What becomes of fired messages: a settlement, gathered vectorised and small to send."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOutcome
from queue_core.ids import IdSet
from queue_core.names import nearest
from queue_core.schema import TIMESTAMP

DELETE, SIDELINE, RELOAD = "delete", "sideline", "reload"
OUTCOMES = (DELETE, SIDELINE, RELOAD)

#: Why messages were sidelined.
FAILURES = pa.schema([pa.field("message_id", pa.int64()), pa.field("reason", pa.string())])
#: What is told of each failure.
TOLD = pa.schema(
    [
        *FAILURES,
        #: The consumer that gave the message up.
        pa.field("consumer", pa.string()),
        pa.field("failed_at", TIMESTAMP),
    ]
)
#: Characters of a reason that are kept.
REASON_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of some messages; none has two."""

    deleted: IdSet = field(default_factory=IdSet)
    sidelined: IdSet = field(default_factory=IdSet)
    reloaded: IdSet = field(default_factory=IdSet)
    #: `FAILURES` of those sidelined messages that have a reason.
    failures: pa.Table = field(default_factory=FAILURES.empty_table)

    def __len__(self) -> int:
        return len(self.deleted) + len(self.sidelined) + len(self.reloaded)

    @staticmethod
    def sideline(ids: IdSet, reason: str | None) -> Settlement:
        """All of some messages are sidelined for the same reason; raises `BadOutcome`."""
        if reason is None:
            return Settlement(sidelined=ids)
        if not isinstance(reason, str):
            raise BadOutcome(f"reason={reason!r}: use text")
        # What was said of a file may hold bytes that are no characters.
        text = reason[:REASON_LENGTH].encode(errors="backslashreplace").decode()
        numbers = pa.array(ids.numbers())
        reasons = pa.repeat(pa.scalar(text), len(numbers))
        return Settlement(sidelined=ids, failures=pa.table([numbers, reasons], schema=FAILURES))

    @staticmethod
    def of(rows: pa.RecordBatch | pa.Table) -> Settlement:
        """
        The settlement that rows describe.

        Columns: ``_message_id`` (int64), ``outcome`` (string: ``delete``, ``sideline`` or
        ``reload``) and, optionally, ``reason`` (string). Raises `BadOutcome`.
        """
        for name in ("_message_id", "outcome"):
            if name not in rows.schema.names:
                raise BadOutcome(
                    f"a settlement needs the column {name!r}{nearest(name, rows.schema.names)}; "
                    "it has _message_id, outcome and, optionally, reason"
                )
        ids, outcomes = rows.column("_message_id"), _known(rows.column("outcome"))
        by_outcome = {outcome: ids.filter(pc.equal(outcomes, outcome)) for outcome in OUTCOMES}
        failures = FAILURES.empty_table()
        if "reason" in rows.schema.names:
            failures = _failures(rows, by_outcome[SIDELINE])
        settlement = Settlement(
            deleted=IdSet.of(by_outcome[DELETE]),
            sidelined=IdSet.of(by_outcome[SIDELINE]),
            reloaded=IdSet.of(by_outcome[RELOAD]),
            failures=failures,
        )
        settlement.check()
        return settlement

    @staticmethod
    def merge(settlements: Iterable[Settlement]) -> Settlement:
        """The settlement of all of them together; raises `BadOutcome` if they contradict."""
        deleted, sidelined, reloaded = IdSet(), IdSet(), IdSet()
        failures = [FAILURES.empty_table()]
        for settlement in settlements:
            deleted |= settlement.deleted
            sidelined |= settlement.sidelined
            reloaded |= settlement.reloaded
            failures.append(settlement.failures)
        merged = Settlement(deleted, sidelined, reloaded, pa.concat_tables(failures))
        merged.check()
        return merged

    def check(self) -> None:
        """Raise `BadOutcome` when a message has two outcomes."""
        for one, other, names in (
            (self.deleted, self.sidelined, "deleted and sidelined"),
            (self.deleted, self.reloaded, "deleted and reloaded"),
            (self.sidelined, self.reloaded, "sidelined and reloaded"),
        ):
            both = one & other
            if len(both):
                raise BadOutcome(
                    f"{len(both)} messages are to be {names} at once, {int(both.numbers()[0])} "
                    "among them; give each message one outcome"
                )


def _known(outcomes: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The outcomes as texts, all of them known."""
    outcomes = _texts("outcome", outcomes)
    known = pc.is_in(outcomes, value_set=pa.array(OUTCOMES))
    if not pc.all(known, min_count=0).as_py():
        strange = outcomes.filter(pc.invert(known))[0].as_py()
        hint = nearest(str(strange), OUTCOMES)
        raise BadOutcome(f"outcome {strange!r} is unknown{hint}; use {', '.join(OUTCOMES)}")
    return outcomes


def _failures(rows: pa.RecordBatch | pa.Table, sidelined: pa.Array | pa.ChunkedArray) -> pa.Table:
    told = _texts("reason", rows.column("reason"))
    reasons = told.filter(pc.equal(rows.column("outcome"), SIDELINE))
    reasons = pc.utf8_slice_codeunits(reasons, 0, REASON_LENGTH)
    table = pa.table({"message_id": sidelined, "reason": reasons}).cast(FAILURES)
    return table.filter(pc.is_valid(table.column("reason")))


def _texts(name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowException as error:
        raise BadOutcome(f"the column {name!r} is {column.type}; use text") from error
