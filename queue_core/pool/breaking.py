"""The breaker of a pool: workers keep its gate in step with the shared state before they fire.

Changes: the row of `queue_core.catalog.records.breakers`. While the breaker is closed, workers only
read it, once a second. Crash: the lease of a probe ends, and another process probes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

from queue_core.catalog.database import Catalog
from queue_core.catalog.records.breakers import SharedBreaker
from queue_core.errors import IgnisError, Unavailable
from queue_core.handling.breaker import Breaker
from queue_core.handling.gate import Gate, Probe

#: Seconds between two looks while the breaker is closed, and while it is not.
CLOSED_SECONDS = 1.0
OPEN_SECONDS = 0.25
#: Seconds after which another process may probe.
LEASE_SECONDS = 5.0
#: Results of probes, and whether they say that its call has failed.
_RESULTS = {Probe.SUCCEEDED: False, Probe.FAILED: True, Probe.UNUSED: None}

_log = logging.getLogger(__name__)


class PoolBreaker:
    """
    A breaker in one process.

    *sources*: the number of queues. *on_change* is called when other messages can be fired.
    """

    def __init__(
        self,
        catalog: Catalog,
        breaker: Breaker,
        name: str,
        consumer: str,
        sources: int,
        on_change: Callable[[], None],
    ) -> None:
        self.gate = Gate(breaker, sources)
        self._shared = SharedBreaker(catalog, breaker, name, LEASE_SECONDS)
        self._consumer = consumer
        self._on_change = on_change
        self._looking = threading.Lock()
        self._look_at = 0.0
        # An open breaker fires nothing.
        self._look()

    def plan(self, source: Hashable) -> int | None:
        """Return how many messages a source may fire now; None: any number, 1: the probe."""
        gate = self.gate
        has_news = gate.tripped or gate.probe in _RESULTS
        is_due = has_news or time.monotonic() >= self._look_at
        if is_due and self._looking.acquire(blocking=False):
            try:
                self._look()
            except Unavailable as error:
                _log.warning("breaker %r: its state cannot be shared: %s", self._shared.name, error)
                self._look_at = time.monotonic() + CLOSED_SECONDS
            finally:
                self._looking.release()
        return int(gate.fires_probe(source)) if gate.stopped else None

    def found_nothing(self, source: Hashable, *, lost: bool = False) -> None:
        """Note that a source has no message for the probe; another one may have some."""
        self.gate.found_nothing(source, lost=lost)
        self._on_change()

    def stop(self) -> None:
        """Let other processes probe at once."""
        gate = self.gate
        if gate.probe is not None and gate.probe not in _RESULTS:
            gate.probe = Probe.UNUSED
        try:
            self._write()
        except IgnisError as error:
            _log.warning("breaker %r: its probe is given up later: %s", self._shared.name, error)

    def _look(self) -> None:
        gate = self.gate
        self._write()
        # A call that takes long is the probe until it ends.
        state, probes = self._shared.look(self._consumer, may_probe=gate.probe is not Probe.CALLED)
        if probes:
            gate.begin_probe()
        changed = gate.update(stops=state.stops, exempt=state.forced and not state.stops)
        self._look_at = time.monotonic() + (OPEN_SECONDS if gate.stopped else CLOSED_SECONDS)
        if changed or probes:
            self._on_change()

    def _write(self) -> None:
        gate = self.gate
        if gate.tripped:
            self._shared.trip(self._consumer)
            gate.tripped = False
        if gate.probe in _RESULTS:
            self._shared.probed(_RESULTS[gate.probe], self._consumer)
            gate.probe = None
