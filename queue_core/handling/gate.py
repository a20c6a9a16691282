"""The gate of a circuit breaker in one process: which calls it admits, and what they have shown."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Hashable, Iterable
from enum import Enum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.handling.breaker import Breaker
from queue_core.values.failure_kinds import EXCEPTION, TIMEOUT, UNREADABLE
from queue_core.values.outcomes import RELOAD, SIDELINE, UNHANDLED

#: A column of a task's settlement: whether the task makes no further calls.
STOPPED = "_stopped"
#: The kinds of failures that a breaker counts.
COUNTED = (EXCEPTION, TIMEOUT)


class Tally(NamedTuple):
    """The calls of some tasks."""

    calls: int = 0
    failures: int = 0
    #: Whether a task has stopped because too many of its calls failed.
    stopped: bool = False

    @staticmethod
    def of(settled: pa.RecordBatch) -> Tally:
        """Return the tally of a settlement: an unhandled or unreadable row is not a call."""
        outcomes, names = settled.column("outcome"), settled.schema.names
        made, failures = pc.not_equal(outcomes, RELOAD), 0
        if "kind" in names:
            kinds = settled.column("kind").cast(pa.string())
            made = pc.invert(pc.is_in(kinds, value_set=pa.array([UNHANDLED, UNREADABLE])))
            failures = failures_of(outcomes, kinds)
        calls = pc.sum(made, min_count=0).as_py()
        stopped = STOPPED in names and pc.any(settled.column(STOPPED), min_count=0).as_py()
        return Tally(calls, failures, stopped)

    @staticmethod
    def sum(tallies: Iterable[Tally]) -> Tally:
        """Return the sum of several tallies."""
        calls, failures, stopped = zip(Tally(), *tallies, strict=True)
        return Tally(sum(calls), sum(failures), any(stopped))


def failures_of(outcomes: pa.Array, kinds: pa.Array) -> int:
    """Return how many calls failed, of those with some outcomes."""
    counted = pc.is_in(kinds.cast(pa.string()), value_set=pa.array(COUNTED))
    failed = pc.and_(pc.equal(outcomes, SIDELINE), counted)
    return int(pc.sum(failed, min_count=0).as_py())


class Window:
    """The last calls of a handler; those that were not made yet count as successful."""

    def __init__(self, breaker: Breaker) -> None:
        self._most = max(math.ceil(breaker.share * breaker.of), 1)
        self._failed = deque([False] * breaker.of, breaker.of)
        #: How many of the calls failed.
        self.failures = 0

    def note(self, calls: int, failures: int) -> bool:
        """Note calls whose order is unknown; return whether too many have failed."""
        of = len(self._failed)
        if calls > of:
            # The window takes the same share of failures as all these calls have.
            failures, calls = math.ceil(failures * of / calls), of
        too_many = False
        for number in range(calls):
            failed = number >= calls - failures
            self.failures += failed - self._failed[0]
            self._failed.append(failed)
            too_many = self.failures >= self._most
        return too_many

    def clear(self) -> None:
        """Forget the calls."""
        self._failed.extend([False] * len(self._failed))
        self.failures = 0


class Probe(Enum):
    """The state of the message that tries out a stopped gate, or the result of its call."""

    WANTED = "no message was fired for it yet"
    FIRED = "its message is fired"
    CALLED = "its call is in progress"
    SUCCEEDED = "its call has succeeded"
    FAILED = "its call has failed"
    UNUSED = "there was no message, or no call was made for it"


class Gate:
    """Admits calls of a handler, and watches them. Thread-safe. *sources* may have messages."""

    def __init__(self, breaker: Breaker, sources: int = 1) -> None:
        self._window = Window(breaker)
        self._sources = sources
        self._lock = threading.Lock()
        #: Whether no call is made but that of a probe.
        self.stopped = False
        #: Whether too many calls have failed, which the shared state does not know yet.
        self.tripped = False
        #: The present probe of this process, or its result until the shared state knows it.
        self.probe: Probe | None = None
        #: Whether it is stopped, and the last probe found no message.
        self.vacant = False
        self._exempt = False
        #: The sources without a message for the probe, those that have ended, and who was asked.
        self._empty: set[Hashable] = set()
        self._lost: set[Hashable] = set()
        self._asked: Hashable = None

    def admits(self) -> bool:
        """Return whether a call may be made now; `note` it afterwards."""
        if not self.stopped:
            return True
        with self._lock:
            if self.probe in (Probe.WANTED, Probe.FIRED):
                self.probe = Probe.CALLED
                return True
            return not self.stopped

    def note(self, calls: int, failures: int) -> None:
        """Note calls that were admitted; 0 if none could be made for their messages."""
        if not failures and not self.stopped and not self._window.failures:
            return
        with self._lock:
            if not self.stopped:
                too_many = self._window.note(calls, failures)
                self.stopped = self.tripped = too_many and not self._exempt
            elif self.probe is Probe.CALLED:
                # Other calls began before the gate stopped.
                result = Probe.FAILED if failures else Probe.SUCCEEDED
                self.probe, self.vacant = result if calls else Probe.UNUSED, False

    def begin_probe(self) -> None:
        """Have the next message be the probe."""
        with self._lock:
            self.probe = Probe.WANTED
            self._empty = set(self._lost)

    def fires_probe(self, source: Hashable) -> bool:
        """Return whether a source shall fire the message of the probe."""
        with self._lock:
            wanted = self.probe is Probe.WANTED and source not in self._empty
            if wanted:
                self.probe, self._asked = Probe.FIRED, source
            return wanted

    def found_nothing(self, source: Hashable, *, lost: bool = False) -> None:
        """Note that a source has no message for the probe; one that is *lost* never has any."""
        with self._lock:
            if lost:
                self._lost.add(source)
            asked = self.probe is Probe.FIRED and self._asked == source
            if asked or (lost and self.probe is Probe.WANTED):
                self._empty |= self._lost | {source}
                self.vacant = len(self._empty) >= self._sources
                self.probe = Probe.UNUSED if self.vacant else Probe.WANTED

    def refused(self, source: Hashable) -> None:
        """Note that a source may fire the message of the probe later; others may do so before."""
        with self._lock:
            if self.probe is Probe.FIRED and self._asked == source:
                self.probe = Probe.WANTED

    def update(self, *, stops: bool, exempt: bool) -> bool:
        """Take over the shared state: whether it stops, or never does; True if it changed."""
        with self._lock:
            stops = stops or self.tripped
            changed = stops != self.stopped
            if changed and not stops:
                # Calls that failed before must not open it again.
                self._window.clear()
                self.probe, self.vacant = None, False
            self.stopped, self._exempt = stops, exempt
            return changed
