"""The gate of one process: which messages may reach the handler, and what its calls showed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable
from enum import Enum
from typing import NamedTuple

import pyarrow as pa

from queue_core.handling.breakers.breaker import WHOLE, Breaker
from queue_core.handling.breakers.keys import is_too_long, keys_of
from queue_core.handling.breakers.tallies import STOPPED
from queue_core.handling.breakers.windows import Windows


class Event(NamedTuple):
    """News for the shared state: a key tripped, or its probe has ended."""

    key: str
    #: Whether too many calls failed; otherwise, a probe has ended.
    trip: bool
    #: Whether the probe failed; None if no message was found for it.
    failed: bool | None = None


class FirePlan(NamedTuple):
    """What to fire now: one message as the probe of a key, or messages without some keys."""

    probe: str | None
    without: frozenset[str]


class _Probe(Enum):
    WANTED = "no message was fired for it yet"
    FIRED = "its message is fired"
    CALLED = "its call is in progress"


class Gate:
    """
    Admits messages to a handler by their keys, and watches its calls. Thread-safe.

    *on_event* is called after each new event; it must not wait. *sources*: how many sources may
    have messages for a probe. *at_once* returns how many probes may be fired at the same time.
    """

    def __init__(
        self,
        breaker: Breaker,
        on_event: Callable[[], None] = lambda: None,
        sources: int = 1,
        at_once: Callable[[], int] = lambda: 1,
    ) -> None:
        self.by = breaker.by
        self._windows = Windows(breaker.share, breaker.of)
        self._on_event = on_event
        self._sources = sources
        self._at_once = at_once
        self._lock = threading.Lock()
        #: The keys whose messages are held back.
        self.stopped: frozenset[str] = frozenset()
        #: Stopped keys of which no message was found.
        self.vacant: frozenset[str] = frozenset()
        self._exempt: frozenset[str] = frozenset()
        self._unwritten: set[str] = set()
        self._probes: dict[str, _Probe] = {}
        self._found_nothing: dict[str, set[Hashable]] = {}
        self._events: deque[Event] = deque()

    def admits(self, key: str) -> bool:
        """Return whether a message may reach the handler now; `note` its call afterwards."""
        if not self.stopped:
            return True
        with self._lock:
            place = self._place(key)
            if place not in self.stopped:
                return True
            if self._probes.get(place) not in (_Probe.WANTED, _Probe.FIRED):
                return False
            self._probes[place] = _Probe.CALLED
            return True

    def note(self, key: str, calls: int, failures: int) -> None:
        """Note the calls for messages that were admitted; 0 if none could be made for them."""
        if not failures and not self.stopped and not len(self._windows):
            return
        with self._lock:
            place = self._place(key)
            if place in self.stopped:
                # Other calls began before the breaker opened.
                if self._probes.get(place) is not _Probe.CALLED:
                    return
                del self._probes[place]
                self._events.append(Event(place, False, failures > 0 if calls else None))
            elif not self._trips(key, calls, failures):
                return
        self._on_event()

    def _trips(self, key: str, calls: int, failures: int) -> bool:
        if calls == 1:
            too_many = self._windows.note(key, failures > 0)
        else:
            too_many = self._windows.note_many(key, calls, failures)
        if not too_many or self._exempt & {key, WHOLE} or is_too_long(key):
            return False
        self.stopped |= {key}
        self._unwritten.add(key)
        self._events.append(Event(key, True))
        return True

    def marks(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the key of each message, marked if the gate has stopped it meanwhile."""
        keys = keys_of(batch, self.by)
        texts = [
            STOPPED + key if key in self.stopped else key for key in keys.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(keys.indices)

    def firing(self, source: Hashable = None) -> FirePlan | None:
        """Return what a source may fire now; None: nothing."""
        stopped = self.stopped
        if not stopped:
            return FirePlan(None, stopped)
        with self._lock:
            for key, probe in self._probes.items() if self._may_probe() else ():
                tried = self._found_nothing.setdefault(key, set())
                if probe is _Probe.WANTED and source not in tried:
                    self._probes[key] = _Probe.FIRED
                    return FirePlan(key, self.stopped)
            return None if WHOLE in self.stopped else FirePlan(None, self.stopped)

    def others(self) -> FirePlan | None:
        """Return what may be fired without a probe; None: nothing."""
        stopped = self.stopped
        return None if WHOLE in stopped else FirePlan(None, stopped)

    def found_nothing(self, key: str, source: Hashable = None) -> None:
        """Note that a source has no message for the probe of a key."""
        with self._lock:
            if self._probes.get(key) is not _Probe.FIRED:
                return
            tried = self._found_nothing.setdefault(key, set())
            tried.add(source)
            if len(tried) < self._sources:
                self._probes[key] = _Probe.WANTED
                return
            del self._probes[key]
            self.vacant |= {key}
            self._events.append(Event(key, False, None))
        self._on_event()

    def probe(self, key: str) -> None:
        """Have the next message of a stopped key be its probe."""
        with self._lock:
            self._found_nothing.pop(key, None)
            self._probes[key] = _Probe.WANTED

    def withdraw(self, key: str) -> bool:
        """Give up a probe for which no message was fired yet; return whether that was so."""
        with self._lock:
            waits = self._probes.get(key) is _Probe.WANTED
            if waits:
                del self._probes[key]
            return waits

    @property
    def probing(self) -> list[str]:
        """The keys whose probe has not ended."""
        with self._lock:
            return list(self._probes)

    def events(self) -> list[Event]:
        """Remove and return the news."""
        with self._lock:
            events, self._events = list(self._events), deque()
        return events

    def put_back(self, events: Collection[Event]) -> None:
        """Keep news that could not be written."""
        with self._lock:
            self._events.extendleft(reversed(list(events)))

    def written(self, events: Collection[Event]) -> None:
        """Note that the shared state knows some news."""
        with self._lock:
            self._unwritten -= {event.key for event in events if event.trip}

    def update(self, stopped: Collection[str], exempt: Collection[str]) -> bool:
        """Take over the shared state: stopped keys, and keys that never stop; True if changed."""
        with self._lock:
            now = frozenset(stopped) | self._unwritten
            changed = now != self.stopped
            for key in self.stopped - now:
                # Calls that failed before must not open it again.
                self._windows.clear(key)
                self._probes.pop(key, None)
            self.stopped, self._exempt = now, frozenset(exempt)
            self.vacant &= now
            return changed

    def _may_probe(self) -> bool:
        """Return whether another probe may be fired, so that not all workers wait for probes."""
        fired = sum(probe is not _Probe.WANTED for probe in self._probes.values())
        return fired < self._at_once()

    def _place(self, key: str) -> str:
        return WHOLE if WHOLE in self.stopped else key
