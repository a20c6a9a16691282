"""The requests of a query, from its options and the present settings of its queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ignis_source.options import SourceOptions
from ignis_source.partition import function_of
from ignis_source.queue_refresh import Queues, open_queues, with_columns_of
from queue_core.catalog import queues as catalog_queues
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.selection.request import Demand, FireRequest
from queue_core.values.column_roles import holding
from queue_core.values.model import QueueInfo

#: Seconds after which a query that fires reads its queues' settings again.
SETTINGS_SECONDS = 1.0


def check_selection(queues: Sequence[QueueInfo], options: SourceOptions) -> None:
    """Raise `BadSelector` or `BadOption` if the options' selector or order does not fit."""
    demand_of(options).selection(queues)


def demand_of(options: SourceOptions) -> Demand:
    """Return what a query with these options takes, without limits."""
    return Demand(
        magazine=options.magazine,
        selector=function_of(options.selector) or options.selector,
        order_by=options.order_by,
        order=options.order,
        fallback=options.fallback,
    )


class Requests:
    """Makes the fire requests of a query. Raises errors of its options or queues."""

    def __init__(self, store: StoreHandle, options: SourceOptions) -> None:
        self._store = store
        self._options = options
        self._demand = demand_of(options)
        #: With their present columns; `queues` keeps the columns that the query began with.
        self.current: list[QueueInfo] = []
        interval = min(options.refresh_interval, SETTINGS_SECONDS)
        self.queues = Queues(self._read, interval, fires=options.ack != "browse")
        #: The end of a run with Trigger.AvailableNow.
        self.horizon: Horizon | None = None
        # A selector that does not fit a queue is refused before the first firing.
        self._demand.selection(self.current)

    def request(
        self,
        queues: Sequence[QueueInfo],
        max_messages: int | None,
        max_bytes: int | None,
        after: int,
    ) -> FireRequest:
        """Return the request for the ticket that follows *after* from some of the queues."""
        demand = replace(self._demand, max_messages=max_messages, max_bytes=max_bytes)
        current, uri = tuple(self.current), self._store.storage.uri
        request = demand.request(queues, demand.selection(current), uri)
        terms = request.terms
        if not (max_messages or max_bytes):
            # All messages are taken, so the shares of the queues do not matter.
            terms = replace(terms, weights={})
        return replace(
            request,
            horizon=self.horizon,
            terms=terms,
            spread=True,
            after=after,
            # Its selector may name columns that were added since the query began.
            queues=current,
        )

    @property
    def holds(self) -> bool:
        """Whether messages of the queues may become due without a change."""
        return any(holding(info.settings, info.schema) for info in self.current)

    def _read(self, known: Sequence[QueueInfo]) -> list[QueueInfo]:
        if not known:
            self.current = open_queues(self._store, self._options.queues)
            return self.current
        with self._store.catalog.read() as connection:
            self.current = catalog_queues.as_they_were(connection, self.current)
        return with_columns_of(known, self.current)
