"""The breaker of a pool: a thread that keeps its gate in step with the shared state.

Changes: the rows of `queue_core.catalog.records.breakers`. While the breaker is closed, the thread
only reads them, once a second. Crash: the lease of a probe ends, and another process probes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.records import breakers
from queue_core.errors import IgnisError, Unavailable
from queue_core.handling.breakers.breaker import Breaker
from queue_core.handling.breakers.gate import Event, Gate
from queue_core.handling.breakers.keys import value_of

#: Seconds between two looks while the breaker is closed, and while it is not.
CLOSED_SECONDS = 1.0
OPEN_SECONDS = 0.25
#: Seconds after which another process may probe, unless the lease is renewed.
LEASE_SECONDS = 5.0
#: Probes of one process at the same time.
MOST_PROBES = 16

_log = logging.getLogger(__name__)


class PoolBreaker:
    """
    A breaker in one process.

    *on_change* is called when other messages can be fired than before, with True when fewer.
    *sources*: the number of queues. *workers* returns the number of workers. *fail* is called with
    an error that ends the thread.
    """

    def __init__(
        self,
        catalog: Catalog,
        breaker: Breaker,
        name: str,
        consumer: str,
        *,
        sources: int,
        workers: Callable[[], int],
        on_change: Callable[[bool], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self._catalog = catalog
        self._breaker = breaker
        self._consumer = consumer
        self._on_change = on_change
        self._fail = fail
        self._check = breaker.asks()
        #: The last error of the check.
        self._failure = ""
        self._wake = threading.Event()
        self._ended = False
        # Slow probes leave half of the workers to the other messages.
        self.gate = Gate(breaker, self._wake.set, sources, lambda: max(workers() // 2, 1))
        #: When each probe of this process was wanted, and when its lease was last renewed.
        self._wanted: dict[str, float] = {}
        self._renewed: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="ignis-breaker", daemon=True)

    def start(self) -> None:
        """Read the shared state, so that an open breaker fires nothing, and start the thread."""
        self._refresh()
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread, and let other processes probe at once."""
        self._ended = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        try:
            self._write(self.gate.events())
            for key in list(self._wanted):
                self._write([Event(key, False, None)])
        except IgnisError as error:
            _log.warning("breaker %r: its probes are given up later: %s", self.name, error)

    @property
    def holds_back(self) -> bool:
        """Whether messages may be waiting that the breaker holds back."""
        return bool(self.gate.stopped - self.gate.vacant)

    def _run(self) -> None:
        wait = 0.0
        while not self._ended:
            self._wake.wait(wait)
            self._wake.clear()
            if self._ended:
                return
            try:
                wait = self._round()
            except Unavailable as error:
                _log.warning("breaker %r: its state cannot be shared now: %s", self.name, error)
                wait = CLOSED_SECONDS
            except BaseException as error:  # noqa: BLE001 - the pool's owner must hear of any error
                self._fail(error)
                return

    def _round(self) -> float:
        """Write the news, read the state, and begin probes that are due; return when to look."""
        self._write(self.gate.events())
        self._renew()
        known = self._refresh()
        due = [key for key in known.due if key not in self._wanted]
        self._probe(self._claim(due[: max(MOST_PROBES - len(self._wanted), 0)]))
        return OPEN_SECONDS if self.gate.stopped else CLOSED_SECONDS

    def _write(self, events: list[Event]) -> None:
        if not events:
            return
        try:
            self._catalog.write(partial(self._note, events))
        except BaseException:
            self.gate.put_back(events)
            raise
        for event in events:
            self._report(event)
            self._wanted.pop(event.key, None)
        known = self._read()
        self.gate.written(events)
        self._take_over(known)

    def _note(self, events: list[Event], connection: Connection) -> None:
        name, breaker, consumer = self.name, self._breaker, self._consumer
        # All processes lock the rows in the same order; a stable sort keeps the order of a key.
        for event in sorted(events, key=lambda event: event.key):
            if event.trip:
                breakers.trip(connection, name, event.key, breaker, consumer)
            else:
                breakers.probed(connection, name, event.key, breaker, event.failed, consumer)

    def _report(self, event: Event) -> None:
        value = f" for {self._breaker.by}={value_of(event.key)!r}" if event.key else ""
        if event.trip:
            _log.warning("breaker %r is open%s: too many calls failed", self.name, value)
        elif event.failed is False:
            _log.info("breaker %r is closed%s: a probe succeeded", self.name, value)

    def _refresh(self) -> breakers.KnownBreakers:
        known = self._read()
        self._take_over(known)
        return known

    def _read(self) -> breakers.KnownBreakers:
        with self._catalog.read() as connection:
            return breakers.read(connection, self.name)

    def _take_over(self, known: breakers.KnownBreakers) -> None:
        before = self.gate.stopped
        if self.gate.update(known.stopped, known.exempt):
            self._on_change(bool(self.gate.stopped - before))
        for key in self._wanted.keys() - self.gate.stopped:
            del self._wanted[key]

    def _claim(self, keys: list[str]) -> list[str]:
        """Claim probes; return the keys for which no other process was faster."""
        if not keys:
            return []
        name, consumer = self.name, self._consumer
        return self._catalog.write(
            lambda connection: [
                key
                for key in sorted(keys)
                if breakers.claim(connection, name, key, LEASE_SECONDS, consumer)
            ]
        )

    def _probe(self, keys: list[str]) -> None:
        if not keys:
            return
        self._wanted |= dict.fromkeys(keys, time.monotonic())
        self._renewed |= dict.fromkeys(keys, time.monotonic())
        if self._check is not None:
            for key in keys:
                self._write([Event(key, False, not self._asked(key))])
            return
        for key in keys:
            self.gate.probe(key)
        self._on_change(False)

    def _asked(self, key: str) -> bool:
        assert self._check is not None
        try:
            return bool(self._check(*([value_of(key)] if self._breaker.by else [])))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            # A check that cannot succeed would keep the breaker open in silence.
            level = logging.INFO if repr(error) == self._failure else logging.WARNING
            self._failure = repr(error)
            _log.log(level, "breaker %r: its check failed: %r", self.name, error)
            return False

    def _renew(self) -> None:
        """Renew the leases of probes, and give up those for which no worker had time."""
        now = time.monotonic()
        for key in list(self._wanted):
            if now - self._wanted[key] > LEASE_SECONDS and self.gate.withdraw(key):
                self._write([Event(key, False, None)])
            elif now - self._renewed[key] > LEASE_SECONDS / 4:
                self._catalog.write(
                    partial(breakers.renew, name=self.name, key=key, lease=LEASE_SECONDS)
                )
                self._renewed[key] = now
