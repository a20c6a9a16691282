"""Settlements: the outcomes of fired messages, as small sets of ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOutcome
from queue_core.failure_kinds import REASON_LENGTH, REASONS, REJECTED, check_kind, readable
from queue_core.ids import IdSet
from queue_core.names import nearest
from queue_core.waits import WAITS, waits_of

DELETE, SIDELINE, RELOAD = "delete", "sideline", "reload"
OUTCOMES = (DELETE, SIDELINE, RELOAD)
#: The kind of reloaded messages that no handler has seen.
UNHANDLED = "unhandled"


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcomes of fired messages. Each message has one outcome; `of` makes it from a table."""

    #: Messages to delete.
    deleted: IdSet = field(default_factory=IdSet)
    #: Messages to move to the sideline.
    sidelined: IdSet = field(default_factory=IdSet)
    #: Messages to put back to their old positions.
    reloaded: IdSet = field(default_factory=IdSet)
    #: Those of them that no handler has seen: their delivery does not count, and clears no suspect.
    unhandled: IdSet = field(default_factory=IdSet)
    #: Why messages are sidelined: ``message_id`` (int64), ``kind`` and ``reason`` (strings).
    #: Messages without a row are ``rejected``, without a reason.
    reasons: pa.Table = field(default_factory=REASONS.empty_table)
    #: When messages are due again, or that they are dead: ``message_id``, ``not_before`` and
    #: ``delay`` (int64, microseconds) and ``dead`` (boolean). Others wait as the policy says.
    waits: pa.Table = field(default_factory=WAITS.empty_table)

    def __len__(self) -> int:
        return len(self.deleted) + len(self.sidelined) + len(self.reloaded)

    @staticmethod
    def sideline(ids: IdSet, reason: str | None = None, kind: str = REJECTED) -> Settlement:
        """
        Sideline messages, all for the same reason.

        Args:
            ids: The messages.
            reason: Any text; the first 2000 characters are kept.
            kind: One word of lower-case letters, digits and ``_``, up to 32 characters.

        Returns:
            The settlement.

        Raises:
            BadOutcome: *kind* or *reason* is malformed.
        """
        check_kind(kind)
        if reason is not None and not isinstance(reason, str):
            raise BadOutcome(f"reason={reason!r}: use text")
        if reason is None and kind == REJECTED:
            return Settlement(sidelined=ids)
        numbers = pa.array(ids.numbers())
        text = pa.scalar(None if reason is None else readable(reason), pa.string())
        same = [pa.repeat(value, len(numbers)) for value in (pa.scalar(kind), text)]
        return Settlement(sidelined=ids, reasons=pa.table([numbers, *same], schema=REASONS))

    @staticmethod
    def of(rows: pa.RecordBatch | pa.Table) -> Settlement:
        """
        Make a settlement from a table, one row per message.

        Args:
            rows: The columns ``_message_id`` (int64), ``outcome`` (string: ``delete``, ``sideline``
                or ``reload``) and, optionally, ``kind`` and ``reason`` (strings, used for
                sidelined messages), ``not_before`` (timestamp with a time zone) or ``delay``
                (number, seconds from the settlement on) and ``dead`` (boolean). A message with a
                time waits in the sideline until then: reloaded, without a failure; or sidelined,
                at this time instead of the policy's. A sidelined message with ``dead`` is not
                tried again.

        Returns:
            The settlement.

        Raises:
            BadOutcome: A column is missing or of another type, an outcome or kind is unknown, or a
                message has two outcomes.
        """
        for name in ("_message_id", "outcome"):
            if name not in rows.schema.names:
                raise BadOutcome(
                    f"a settlement needs the column {name!r}{nearest(name, rows.schema.names)}; "
                    "it has _message_id, outcome and, optionally, kind, reason, not_before, delay "
                    "and dead"
                )
        ids, outcomes = rows.column("_message_id"), _known(rows.column("outcome"))
        having = {outcome: pc.equal(outcomes, outcome) for outcome in OUTCOMES}
        by_outcome = {outcome: ids.filter(these) for outcome, these in having.items()}
        settlement = Settlement(
            deleted=IdSet.of(by_outcome[DELETE]),
            sidelined=IdSet.of(by_outcome[SIDELINE]),
            reloaded=IdSet.of(by_outcome[RELOAD]),
            unhandled=_unhandled(rows, having[RELOAD]),
            reasons=_reasons(rows, having[SIDELINE]),
            waits=waits_of(rows, having[SIDELINE], having[RELOAD]),
        )
        settlement.check()
        return settlement

    @staticmethod
    def merge(settlements: Iterable[Settlement]) -> Settlement:
        """
        Combine settlements into one.

        Args:
            settlements: The settlements.

        Returns:
            The settlement with the outcomes of all of them.

        Raises:
            BadOutcome: A message has two outcomes.
        """
        deleted, sidelined, reloaded, unhandled = IdSet(), IdSet(), IdSet(), IdSet()
        reasons, waits = [REASONS.empty_table()], [WAITS.empty_table()]
        for settlement in settlements:
            deleted |= settlement.deleted
            sidelined |= settlement.sidelined
            reloaded |= settlement.reloaded
            unhandled |= settlement.unhandled
            reasons.append(settlement.reasons)
            waits.append(settlement.waits)
        tables = (pa.concat_tables(reasons), pa.concat_tables(waits))
        merged = Settlement(deleted, sidelined, reloaded, unhandled, *tables)
        merged.check()
        return merged

    def check(self) -> None:
        """
        Check that no message has two outcomes.

        Raises:
            BadOutcome: A message has two outcomes.
        """
        for one, other, names in (
            (self.deleted, self.sidelined, "deleted and sidelined"),
            (self.deleted, self.reloaded, "deleted and reloaded"),
            (self.sidelined, self.reloaded, "sidelined and reloaded"),
        ):
            both = one & other
            if len(both):
                raise BadOutcome(
                    f"{len(both)} messages are both {names}, such as {int(both.numbers()[0])}; "
                    "give each message one outcome"
                )


def _known(outcomes: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the outcomes as texts; raises `BadOutcome` for an unknown one."""
    outcomes = _texts("outcome", outcomes)
    known = pc.is_in(outcomes, value_set=pa.array(OUTCOMES))
    if not pc.all(known, min_count=0).as_py():
        strange = outcomes.filter(pc.invert(known))[0].as_py()
        hint = nearest(str(strange), OUTCOMES)
        raise BadOutcome(f"outcome {strange!r} is unknown{hint}; use {', '.join(OUTCOMES)}")
    return outcomes


def _unhandled(rows: pa.RecordBatch | pa.Table, reloaded: pa.Array | pa.ChunkedArray) -> IdSet:
    """Return the reloaded messages that no handler has seen, by their kind."""
    if "kind" not in rows.schema.names:
        return IdSet()
    these = pc.and_(reloaded, pc.equal(_texts("kind", rows.column("kind")), UNHANDLED))
    return IdSet.of(rows.column("_message_id").filter(these.fill_null(False)))


def _reasons(rows: pa.RecordBatch | pa.Table, sidelined: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the `REASONS` of the sidelined rows that have one."""
    names = [name for name in ("kind", "reason") if name in rows.schema.names]
    if not names:
        return REASONS.empty_table()
    given = {name: _texts(name, rows.column(name)).filter(sidelined) for name in names}
    nothing = pa.nulls(pc.sum(sidelined, min_count=0).as_py(), pa.string())
    kinds, reasons = given.get("kind", nothing), given.get("reason", nothing)
    for kind in pc.unique(kinds.drop_null()).to_pylist():
        check_kind(kind)
    table = pa.table(
        {
            "message_id": rows.column("_message_id").filter(sidelined),
            "kind": kinds.fill_null(REJECTED),
            "reason": pc.utf8_slice_codeunits(reasons, 0, REASON_LENGTH),
        }
    ).cast(REASONS)
    return table.filter(pc.or_(kinds.is_valid(), reasons.is_valid()))


def _texts(name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowException as error:
        raise BadOutcome(f"the column {name!r} is {column.type}; use text") from error
