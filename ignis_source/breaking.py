"""The circuit breaker of a query: what it may fire now, by the state that all processes share."""

from __future__ import annotations

import logging
import time

from queue_core.catalog.database import Catalog
from queue_core.catalog.records import breakers
from queue_core.handling.breakers.breaker import WHOLE, Breaker
from queue_core.handling.breakers.gate import FirePlan
from queue_core.handling.breakers.keys import condition, value_of

#: Seconds that a micro-batch with a probe may take, before another process may probe.
LEASE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class QueryBreaker:
    """
    A breaker, as the source of a query sees it. The sink notes the results of the calls.

    Changes: claims probes. Crash: the restarted query handles the batch of the probe again; without
    a restart, another process probes when the lease ends.
    """

    def __init__(self, catalog: Catalog, breaker: Breaker, name: str) -> None:
        self._catalog = catalog
        self._breaker = breaker
        self._name = name
        self._check = breaker.asks()
        #: The last error of the check.
        self._failure = ""
        #: Whether some messages were held back at the last look.
        self.stops = False

    def plan(self, consumer: str) -> FirePlan | None:
        """Return what to fire now; None: nothing. Claims a probe that is due."""
        known = self._read()
        for key in known.due:
            if not self._claim(key, consumer):
                continue
            if self._check is None:
                return FirePlan(key, frozenset(known.stopped))
            self.probed(key, not self._asked(key), consumer)
            known = self._read()
        stopped = frozenset(known.stopped)
        return None if WHOLE in stopped else FirePlan(None, stopped)

    def condition(self, plan: FirePlan) -> str | None:
        """Return the condition on messages that a plan has."""
        keys = (plan.without if plan.probe is None else {plan.probe}) - {WHOLE}
        if self._breaker.by is None or not keys:
            return None
        return condition(self._breaker.by, keys, among=plan.probe is not None)

    def probed(self, key: str, failed: bool | None, consumer: str) -> None:
        """Note the result of a probe; None: there was no message for it."""
        self._catalog.write(
            lambda connection: breakers.probed(
                connection, self._name, key, self._breaker, failed, consumer
            )
        )

    def _read(self) -> breakers.KnownBreakers:
        with self._catalog.read() as connection:
            known = breakers.read(connection, self._name)
        self.stops = bool(known.stopped)
        return known

    def _claim(self, key: str, consumer: str) -> bool:
        return self._catalog.write(
            lambda connection: breakers.claim(connection, self._name, key, LEASE_SECONDS, consumer)
        )

    def _asked(self, key: str) -> bool:
        assert self._check is not None
        began = time.monotonic()
        try:
            return bool(self._check(*([value_of(key)] if self._breaker.by else [])))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            took = time.monotonic() - began
            # A check that cannot succeed would keep the breaker open in silence.
            level = logging.INFO if repr(error) == self._failure else logging.WARNING
            self._failure = repr(error)
            _log.log(
                level, "breaker %r: its check failed after %.1f s: %r", self._name, took, error
            )
            return False
