"""Settlements: the outcomes of fired messages, as small sets of ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOutcome
from queue_core.values.failure_kinds import (
    REASON_LENGTH,
    REASONS,
    REJECTED,
    TRACES,
    check_kind,
    check_reasons,
    check_table,
    no_reasons,
    no_traces,
    readable,
    traces_of,
)
from queue_core.values.ids import IdSet, numbers_of
from queue_core.values.names import nearest
from queue_core.values.valid_text import is_valid, valid_table
from queue_core.values.waits import COLUMNS as TIMES
from queue_core.values.waits import check_waits, dead_of, no_waits, waits_of

DELETE, SIDELINE, RELOAD = "delete", "sideline", "reload"
OUTCOMES = (DELETE, SIDELINE, RELOAD)
#: The columns of a table of outcomes.
_TEXTS = ("kind", "reason", "trace")
_COLUMNS = ("_message_id", "outcome", *_TEXTS, *TIMES)
#: Those that may be left out, with their types.
_OPTIONAL = dict.fromkeys(_TEXTS, pa.string()) | TIMES
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
    reasons: pa.Table = field(default_factory=no_reasons)
    #: When messages are due again, or that they are dead: ``message_id``, ``not_before`` and
    #: ``delay`` (int64, microseconds) and ``dead`` (boolean). Others wait as the policy says.
    waits: pa.Table = field(default_factory=no_waits)
    #: The ends of the traces of exceptions, of some sidelined messages: ``message_id`` (int64) and
    #: ``trace`` (string). The catalog keeps one for each queue, kind and fingerprint.
    traces: pa.Table = field(default_factory=no_traces)

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
                tried again. The optional column ``trace`` (string) has the end of an exception's
                trace; one for each queue, kind and fingerprint is kept.

        Returns:
            The settlement.

        Raises:
            BadOutcome: A column is missing or of another type, an outcome or kind is unknown, or a
                message has two outcomes or two times.
        """
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            raise BadOutcome(
                f"a settlement is made from a pyarrow Table or RecordBatch, not from "
                f"{type(rows).__name__}"
            )
        check_once(rows.schema.names, "a settlement")
        for name in ("_message_id", "outcome"):
            if name not in rows.schema.names:
                raise BadOutcome(
                    f"a settlement needs the column {name!r}"
                    f"{nearest(name, rows.schema.names) or '.'} Its columns are _message_id, "
                    "outcome and, optionally, kind, reason, not_before, delay and dead"
                )
        rows = _telling(rows)
        ids, outcomes = numbers_of(rows.column("_message_id")), _places(rows.column("outcome"))
        deleted, sidelined, reloaded = (outcomes == place for place in range(len(OUTCOMES)))
        settlement = Settlement(
            deleted=IdSet.of(ids[deleted]),
            sidelined=IdSet.of(ids[sidelined]),
            reloaded=IdSet.of(ids[reloaded]),
            unhandled=_unhandled(rows, reloaded),
            reasons=_reasons(rows, sidelined),
            waits=waits_of(rows, sidelined, reloaded),
            traces=_traces(rows, sidelined),
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
        reasons, waits, traces = [no_reasons()], [no_waits()], [no_traces()]
        for settlement in settlements:
            deleted |= settlement.deleted
            sidelined |= settlement.sidelined
            reloaded |= settlement.reloaded
            unhandled |= settlement.unhandled
            reasons.append(settlement.reasons)
            waits.append(settlement.waits)
            traces.append(settlement.traces)
        tables = map(pa.concat_tables, (reasons, waits, traces))
        merged = Settlement(deleted, sidelined, reloaded, unhandled, *tables)
        merged.check()
        return merged

    def check(self) -> None:
        """
        Check the outcomes, as every settlement does.

        Raises:
            BadOutcome: A message has two outcomes or two times, is dead without being sidelined, or
                has a kind, reason or time that cannot be; or a field has another type.
        """
        for name in ("deleted", "sidelined", "reloaded", "unhandled"):
            if not isinstance(given := getattr(self, name), IdSet):
                raise BadOutcome(
                    f"{name}: expected an IdSet, got {type(given).__name__}; IdSet.of makes one "
                    "from ids"
                )
        check_reasons(self.reasons)
        check_waits(self.waits)
        check_table("traces", self.traces, TRACES)
        dead = dead_of(self.waits) & self.reloaded
        if len(dead):
            raise BadOutcome(
                f"message {int(dead.numbers()[0])} with dead=true is reloaded; dead is for the "
                "outcome sideline"
            )
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


def check_once(names: Sequence[str], whose: str) -> None:
    """Raise `BadOutcome` if one of the columns of a table of outcomes is there twice."""
    for name in _COLUMNS:
        if names.count(name) > 1:
            raise BadOutcome(f"{whose} has the column {name!r} twice")


def _telling(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Return a table of outcomes without optional columns in which each value is null."""
    # Most messages are deleted, and nothing else is said of them.
    return rows.select(
        [
            at
            for at, (field, column) in enumerate(zip(rows.schema, rows.columns, strict=True))
            if column.null_count < len(column) or _OPTIONAL.get(field.name) != field.type
        ]
    )


def with_each(
    settlement: Settlement,
    ids: Callable[[IdSet], IdSet],
    tables: Callable[[pa.Table], pa.Table] = lambda table: table,
) -> Settlement:
    """Return a settlement with its sets of ids, and its tables, changed by functions."""
    sets = (settlement.deleted, settlement.sidelined, settlement.reloaded, settlement.unhandled)
    rows = (settlement.reasons, settlement.waits, settlement.traces)
    return Settlement(*map(ids, sets), *map(tables, rows))


def _places(outcomes: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """Return the place of each outcome in `OUTCOMES`; raises `BadOutcome` for an unknown one."""
    outcomes = _texts("outcome", outcomes)
    found = pc.index_in(outcomes, value_set=pa.array(OUTCOMES))
    if found.null_count:
        strange = outcomes.filter(found.is_null())[0].as_py()
        hint = nearest(str(strange), OUTCOMES)
        raise BadOutcome(f"outcome {strange!r} is unknown{hint}; use {', '.join(OUTCOMES)}")
    places: npt.NDArray[np.int32] = found.to_numpy()
    return places


def _unhandled(rows: pa.RecordBatch | pa.Table, reloaded: npt.NDArray[np.bool_]) -> IdSet:
    """Return the reloaded messages that no handler has seen, by their kind."""
    if "kind" not in rows.schema.names:
        return IdSet()
    these = pc.and_(reloaded, pc.equal(_texts("kind", rows.column("kind")), UNHANDLED))
    return IdSet.of(rows.column("_message_id").filter(these.fill_null(False)))


def _reasons(rows: pa.RecordBatch | pa.Table, sidelined: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the `REASONS` of the sidelined rows that have one."""
    names = [name for name in ("kind", "reason") if name in rows.schema.names]
    if not names:
        return no_reasons()
    given = {name: _texts(name, rows.column(name)).filter(sidelined) for name in names}
    nothing = pa.nulls(np.count_nonzero(sidelined), pa.string())
    kinds, reasons = given.get("kind", nothing), given.get("reason", nothing)
    table = pa.table(
        {
            "message_id": rows.column("_message_id").filter(sidelined),
            "kind": kinds.fill_null(REJECTED),
            "reason": pc.utf8_slice_codeunits(reasons, 0, REASON_LENGTH),
        }
    ).cast(REASONS)
    return table.filter(pc.or_(kinds.is_valid(), reasons.is_valid()))


def _traces(rows: pa.RecordBatch | pa.Table, sidelined: npt.NDArray[np.bool_]) -> pa.Table:
    if "trace" not in rows.schema.names:
        return no_traces()
    traces = _texts("trace", rows.column("trace")).filter(sidelined)
    return traces_of(rows.column("_message_id").filter(sidelined), traces)


def _texts(name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column as texts; a row with invalid bytes must not stop a query."""
    try:
        texts = column.cast(pa.string())
    except pa.ArrowException as error:
        raise BadOutcome(f"the column {name!r} is {column.type}; use text") from error
    return texts if is_valid(texts) else valid_table(pa.table({name: texts})).column(0)
