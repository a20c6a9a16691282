"""The queries of a manager that queues with the same columns share: one for all of such queues."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_ignis.managed_query import ManagedQuery, QueueState, shape_of, stop_between_batches
from pyspark_ignis.query_plan import consumer_of
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.holders import holding
from queue_core.values.model import QueueInfo
from queue_core.values.schema import serialize
from queue_core.verbs.recover import give_back

#: How the names of shared queries begin. Those of queues begin with a letter.
PREFIX = "_shared-"
#: Starts a query by its name, for the handlers of its queues.
Start = Callable[[str, Mapping[str, Any]], StreamingQuery]


class QueryOfMany(ManagedQuery):
    """The query of some columns."""

    def __init__(self, name: str, start: Start) -> None:
        super().__init__(
            lambda: start(name, {info.name: of.given for of, info in self.members.items()})
        )
        #: The queues that belong to it.
        self.members: dict[SharedQuery, QueueInfo] = {}


class SharedQueries:
    """
    One query for all queues that have the same columns; queues of one root are in different ones.

    A query whose queues change is stopped between two micro-batches and started again.
    """

    def __init__(self, start: Start, checkpoints: str, grace: float) -> None:
        self._start = start
        self._checkpoints = checkpoints
        self._grace = grace
        #: By one of the digests of their columns.
        self._queries: dict[str, QueryOfMany] = {}

    def query_for(self, info: QueueInfo) -> QueryOfMany:
        """Return the query of a queue's columns to which it can belong."""
        for digest in _digests(info.schema):
            if digest not in self._queries:
                self._queries[digest] = QueryOfMany(f"{PREFIX}{digest}", self._start)
            query = self._queries[digest]
            # Messages of one root have the same ids, which no query can tell apart.
            if all(other.root != info.root for other in query.members.values()):
                break
        return query

    def settle_in(self, catalog: Catalog) -> None:
        """Start the queries whose queues have come, and start again those whose have changed."""
        queries = self._queries.values()
        changed = [each for each in queries if each.shape != shape_of(each.members.values())]
        stop_between_batches([each.running for each in changed], self._grace)
        self._give_back(catalog)
        for query in queries:
            if query.members:
                query.attend(query.members.values())
            else:
                query.leave("stopped")

    def _give_back(self, catalog: Catalog) -> None:
        """
        Put back the messages that a query holds of queues that it no longer serves.

        Otherwise, these messages would be in flight until a sweep, or the query could not plan its
        last batch without their queues.
        """
        homes = {
            info.id: digest
            for digest, query in self._queries.items()
            for info in query.members.values()
        }
        if not homes:
            return
        with catalog.read() as connection:
            held = holding(connection, None)
        strays = set()
        for each in held:
            digest = each.name.removeprefix(f"consume:{PREFIX}").partition(":")[0]
            # Queries of another manager may have their checkpoints beside these.
            ours = each.queue_id in homes or digest in homes.values()
            if (
                ours
                and homes.get(each.queue_id) != digest
                and each.name == consumer_of(f"{self._checkpoints}/{PREFIX}{digest}")
            ):
                strays.add(each.name)
        for name in sorted(strays):
            give_back(catalog, name)

    @property
    def failed(self) -> bool:
        """Whether a query that queues belong to does not run: it failed, or its start did."""
        return any(query.members and query.running is None for query in self._queries.values())


def _digests(schema: pa.Schema) -> Iterator[str]:
    """Yield the digests that name the queries of queues with these columns, one by one."""
    columns = serialize(schema)
    for number in count():
        more = b"%d" % number if number else b""
        yield hashlib.sha256(columns + more).hexdigest()[:16]


class SharedQuery:
    """
    A queue's place in the query that it shares; the counterpart of `ManagedQuery`.

    *given*: the queue's arguments of `consume_many`. It is in no query yet.
    """

    def __init__(self, queries: SharedQueries, given: Any) -> None:
        self.given = given
        self._queries = queries
        #: The query to which the queue belongs; None while it belongs to none.
        self.query: QueryOfMany | None = None
        self._absence = "stopped"

    @property
    def running(self) -> StreamingQuery | None:
        """The shared query, while it is running."""
        query = self.query
        return None if query is None else query.running

    def attend(self, infos: Collection[QueueInfo]) -> None:
        """Have the queue served by the query of its columns, from `SharedQueries.settle_in` on."""
        (info,) = infos
        self._quit()
        self.query = self._queries.query_for(info)
        self.query.members[self] = info

    def leave(self, absence: str) -> None:
        """Have the queue served no more; *absence* becomes its status."""
        self._quit()
        self._absence = absence
        self.query = None

    def state(self, paused: bool = False) -> QueueState:
        """Return the current state; *paused* says whether the queue is paused now."""
        query = self.query
        return QueueState(status=self._absence) if query is None else query.state(paused)

    def _quit(self) -> None:
        if self.query is not None:
            self.query.members.pop(self, None)
