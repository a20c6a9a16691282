"""The log of failures: the first one a minute of each group, with its trace, and then how many."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from queue_core.values.failure_kinds import (
    EXCEPTION,
    REJECTED,
    TIMEOUT,
    TRACES,
    UNDECIDED,
    UNREADABLE,
)
from queue_core.values.fingerprints import fingerprints
from queue_core.values.outcomes import Settlement

EVERY_SECONDS = 60.0
#: Kinds that a mistake or an outage causes, and not a decision of the handler.
_ALARMING = (EXCEPTION, TIMEOUT, UNDECIDED, UNREADABLE)
_log = logging.getLogger(__name__)


#: The kind and the fingerprint of failures, and whether a trace was logged with them.
_Seen = tuple[str, str | None, bool]


@dataclass(slots=True)
class _Minute:
    """What was logged of a queue in the current minute, which began with a failure."""

    timer: threading.Timer
    seen: set[_Seen] = field(default_factory=set)
    more: int = 0


class FailureLog:
    """The log of the failures of a process. Thread-safe."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked child does: it has no timers, and another thread had the lock."""
        self._lock = threading.Lock()
        #: By the address of the catalog and the queue.
        self._minutes: dict[tuple[str, str], _Minute] = {}

    def note(self, queue: str, settlement: Settlement, catalog: str = "") -> None:
        """
        Note messages that were sidelined; log those that are new among the failures.

        *catalog*: the address of the catalog that has the queue.
        """
        count = len(settlement.sidelined)
        if not count or not _log.isEnabledFor(logging.WARNING):
            return
        with self._lock:
            minute = self._minutes.get((catalog, queue))
            if minute is None:
                timer = threading.Timer(EVERY_SECONDS, self.flush, [queue], {"catalog": catalog})
                timer.daemon = True
                minute = _Minute(timer)
                # If no thread can be started to end the minute, it is over at once.
                with suppress(RuntimeError):
                    timer.start()
                    self._minutes[catalog, queue] = minute
            new = [each for each in _samples(settlement, minute.seen) if _is_new(minute.seen, each)]
            minute.more += count - len(new)
        for message_id, kind, reason, fingerprint, trace in new:
            level = logging.WARNING if kind in _ALARMING else logging.INFO
            text = ": ".join(each for each in (kind, reason) if each)
            text += f"\n{trace}" if trace else ""
            fields = {"queue": queue, "message_id": message_id, "kind": kind}
            fields |= {"fingerprint": fingerprint}
            _log.log(
                level, "queue %r: message %d failed: %s", queue, message_id, text, extra=fields
            )

    def flush(self, *queues: str, catalog: str = "") -> None:
        """Log how many other messages of these queues were sidelined."""
        for queue in queues:
            with self._lock:
                minute = self._minutes.pop((catalog, queue), None)
            if minute is None:
                continue
            minute.timer.cancel()
            if minute.more:
                fields = {"queue": queue, "messages": minute.more}
                text = "queue %r: %d more messages failed since then"
                _log.warning(text, queue, minute.more, extra=fields)


_Sample = tuple[int, str, str | None, str | None, str | None]


def _is_new(seen: set[_Seen], sample: _Sample) -> bool:
    """Return whether a group was not logged, or is logged with its trace for the first time."""
    _, kind, _, fingerprint, trace = sample
    traced = (kind, fingerprint, True)
    keys = {traced} if trace else {traced, (kind, fingerprint, False)}
    is_new = keys.isdisjoint(seen)
    seen.add((kind, fingerprint, trace is not None))
    return is_new


def _samples(settlement: Settlement, seen: set[_Seen]) -> Iterator[_Sample]:
    """Yield the messages that have traces, and the first one of each kind that was not seen."""
    import pyarrow.compute as pc

    reasons, traces = settlement.reasons, settlement.traces
    if reasons.num_rows < len(settlement.sidelined) and (REJECTED, None, False) not in seen:
        given = settlement.sidelined.numbers()
        silent = pc.is_in(pa.array(given), value_set=reasons.column("message_id").combine_chunks())
        yield int(given[pc.index(silent, False).as_py()]), REJECTED, None, None, None
    kinds = {kind for kind, _, _ in seen}
    fresh = [kind for kind in pc.unique(reasons.column("kind")).to_pylist() if kind not in kinds]
    if not (fresh or traces.num_rows):
        # Most settlements of a flood have nothing new.
        return
    firsts = [pc.index(reasons.column("kind"), kind).as_py() for kind in fresh]
    ids = reasons.column("message_id").take(pa.array(firsts, pa.int64()))
    bare = pc.invert(pc.is_in(ids, value_set=traces.column("message_id").combine_chunks()))
    ids = ids.filter(bare)
    nothing = pa.chunked_array([pa.nulls(len(ids), pa.string())])
    these = pa.concat_tables([traces, pa.table([ids, nothing], schema=TRACES)])
    known = reasons.column("message_id").combine_chunks()
    these = these.filter(pc.is_in(these.column("message_id"), value_set=known))
    found = reasons.take(pc.index_in(these.column("message_id"), value_set=known))
    alike = fingerprints(found.column("kind"), found.column("reason"))
    columns = (*found.columns, alike, these.column("trace"))
    yield from zip(*(column.to_pylist() for column in columns), strict=True)


#: That of this process.
FAILURES = FailureLog()
os.register_at_fork(after_in_child=FAILURES.forget)
