"""Decide when the messages of a settlement are due again. Pure: touches no catalog.

The messages of a slice that get the same outcome, kind and time become one slice, so that slices
stay few: a settlement has one jitter, and given times are rounded up to a quarter of a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import numpy as np
import pyarrow as pa

from queue_core.values.failure_kinds import REJECTED, no_reasons
from queue_core.values.ids import IdSet
from queue_core.values.model import Slice
from queue_core.values.retry import Retry
from queue_core.values.rows import EMPTY, Numbers, Rows
from queue_core.values.waits import LATEST, no_waits

#: The due time of dead messages.
NEVER = 2**62
#: Given times are rounded up to multiples of this: microseconds.
_STEP = 250_000
#: The last of these multiples that a datetime of Python can show.
_LAST = LATEST // _STEP * _STEP


class DueTimes:
    """The due times of the messages of one settlement, from its `WAITS` and its `REASONS`."""

    def __init__(self, waits: pa.Table, reasons: pa.Table, now: int) -> None:
        self._now = now
        #: The given due times, by the segments of their messages.
        self._given: dict[int, list[tuple[int, Rows]]] = defaultdict(list)
        for due_at, ids in _groups(waits, now):
            for segment in ids.segments:
                self._given[segment].append((due_at, ids.rows(segment)))
        self._reasons = reasons
        #: Failures of each kind; those without a row are rejected.
        self._kinds: dict[str, IdSet] | None = None

    @staticmethod
    @cache
    def none() -> DueTimes:
        """Return the due times of a settlement of which no message waits."""
        # Not at the top: an array would import pandas, for which a query would wait.
        return DueTimes(no_waits(), no_reasons(), 0)

    def failed(
        self, piece: Slice, rows: Rows, retry: Retry | None
    ) -> Iterator[tuple[Rows, int | None]]:
        """Divide rows that have failed by their due times; *piece* is as it was before."""
        for due_at, these in self._given.get(piece.segment_id, ()):
            here = rows & these
            if here:
                yield here, due_at
                rows = rows - here
        if not rows:
            return
        if retry is None:
            yield rows, None
            return
        due_at = due_after(retry, piece.attempts + 1, self._now)
        dead = self._unretried(retry, piece, rows) if due_at != NEVER else None
        if dead:
            yield dead, NEVER
            rows = rows - dead
        if rows:
            yield rows, due_at

    def later(self, piece: Slice, rows: Rows) -> Iterator[tuple[Rows, int]]:
        """Return those rows of reloaded messages that wait for a time to come, by their times."""
        for due_at, these in self._given.get(piece.segment_id, ()):
            here = rows & these
            if here and due_at > self._now:
                yield here, due_at
                rows = rows - here

    def _unretried(self, retry: Retry, piece: Slice, rows: Rows) -> Rows:
        """Return the rows whose failures are of a kind that the policy does not retry."""
        if self._kinds is None:
            self._kinds = _by_kind(self._reasons)
        known = {kind: ids.rows(piece.segment_id) for kind, ids in self._kinds.items()}
        dead, rest = EMPTY, rows
        for kind, of_kind in known.items():
            here = rest & of_kind
            rest = rest - here
            if not retry.retries(kind):
                dead = dead | here
        return dead if retry.retries(REJECTED) else dead | rest


def due_after(retry: Retry, failures: int, now: int) -> int:
    """
    Return when a message is due after so many failures; `NEVER`, if it is dead.

    Messages that have failed equally often are due together if they fail in one transaction, which
    has one time: then compaction can merge their slices.
    """
    # A number from 0 to 1 that differs widely between times, by Knuth's multiplier.
    seconds = retry.wait(failures, chance=now * 2_654_435_761 % 2**32 / 2**32)
    return NEVER if seconds is None else now + int(seconds * 1e6)


def _groups(waits: pa.Table, now: int) -> Iterator[tuple[int, IdSet]]:
    """Yield each due time and its messages."""
    if not waits.num_rows:
        return
    ids = waits.column("message_id").to_numpy()
    at = _filled(waits, "not_before", -1)
    delay = _filled(waits, "delay", -1)
    given = np.minimum(-(-at // _STEP) * _STEP, _LAST)
    times = np.where(delay >= 0, now + delay, np.where(at >= 0, given, 0))
    dead = waits.column("dead").fill_null(False).to_numpy()
    times = np.where(dead, NEVER, times)
    order = np.argsort(times, kind="stable")
    ids, times = ids[order], times[order]
    starts = np.flatnonzero(np.diff(times, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
        yield int(times[start]), IdSet.of(ids[start:stop])


def _filled(waits: pa.Table, name: str, instead: int) -> Numbers:
    filled: Numbers = waits.column(name).fill_null(instead).to_numpy()
    return filled


def _by_kind(reasons: pa.Table) -> dict[str, IdSet]:
    # Not at the top: a query waits for imports, and few messages fail.
    import pyarrow.compute as pc

    ids, kinds = reasons.column("message_id"), reasons.column("kind").fill_null(REJECTED)
    return {
        kind: IdSet.of(ids.filter(pc.equal(kinds, kind))) for kind in pc.unique(kinds).to_pylist()
    }
