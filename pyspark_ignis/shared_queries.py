"""The queries of a manager that queues with the same columns share: one for all of such queues."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
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


class SharedQueries:
    """
    One query for all queues that have the same columns; queues of one root are in different ones.

    A query whose queues change is stopped between two micro-batches and started again.
    """

    def __init__(self, start: Start, checkpoints: str, grace: float) -> None:
        self._start = start
        self._checkpoints = checkpoints
        self._grace = grace
        #: The queries, and the queues of each, by one of the digests of their columns.
        self._queries: dict[str, ManagedQuery] = {}
        self._members: dict[str, dict[str, tuple[QueueInfo, Any]]] = {}

    def join(self, info: QueueInfo, given: Any) -> str:
        """Let a queue belong to a query of its columns, from `settle_in` on."""
        digest = next(
            each
            for each in _digests(info.schema)
            # Messages of one root have the same ids, which no query can tell apart.
            if all(other.root != info.root for other, _ in self._members.get(each, {}).values())
        )
        self._queries.setdefault(digest, ManagedQuery(partial(self._begin, digest)))
        self._members.setdefault(digest, {})[info.name] = (info, given)
        return digest

    def quit(self, digest: str, queue: str) -> None:
        """Let a queue belong to a query no more, from `settle_in` on."""
        self._members[digest].pop(queue, None)

    def settle_in(self, catalog: Catalog) -> None:
        """Start the queries whose queues have come, and start again those whose have changed."""
        of = {digest: [info for info, _ in each.values()] for digest, each in self._members.items()}
        changed = [
            query.running
            for digest, query in self._queries.items()
            if query.running is not None and query.shape != shape_of(of[digest])
        ]
        stop_between_batches(changed, self._grace)
        self._give_back(catalog, {info.id: digest for digest in of for info in of[digest]})
        for digest, infos in of.items():
            if infos:
                self._queries[digest].attend(infos)
            else:
                self._queries[digest].leave("stopped")

    def _give_back(self, catalog: Catalog, homes: Mapping[int, str]) -> None:
        """
        Let messages wait again that a query holds of queues which are in another one now, or none.

        *homes*: the digest of each queue. Otherwise, nobody would ask for these messages before a
        sweep, or the query could not plan its last batch without these queues.
        """
        if not homes:
            return
        with catalog.read() as connection:
            held = holding(connection)
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
        return any(
            members and self._queries[digest].running is None
            for digest, members in self._members.items()
        )

    def query(self, digest: str) -> ManagedQuery:
        """Return the query of some columns."""
        return self._queries[digest]

    def _begin(self, digest: str) -> StreamingQuery:
        return self._start(
            f"{PREFIX}{digest}", {name: given for name, (_, given) in self._members[digest].items()}
        )


def _digests(schema: pa.Schema) -> Iterator[str]:
    """Yield what tells the queries of queues with these columns apart, one after the other."""
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
        self._queries = queries
        self._given = given
        self._digest: str | None = None
        self._queue: str | None = None
        self._absence: str | None = "stopped"

    @property
    def running(self) -> StreamingQuery | None:
        """The shared query, while it is running."""
        if self._digest is None or self._absence is not None:
            return None
        return self._queries.query(self._digest).running

    def attend(self, infos: Collection[QueueInfo]) -> None:
        """Have the queue served by the query of its columns, from `SharedQueries.settle_in` on."""
        (info,) = infos
        self._quit()
        self._absence = None
        self._queue = info.name
        self._digest = self._queries.join(info, self._given)

    def leave(self, absence: str) -> None:
        """Have the queue served no more; *absence* becomes its status."""
        self._absence = absence
        self._quit()

    def state(self, paused: bool = False) -> QueueState:
        """Return the current state; *paused* says whether the queue is paused now."""
        if self._absence is not None or self._digest is None:
            return QueueState(status=self._absence or "stopped")
        return self._queries.query(self._digest).state(paused)

    def _quit(self) -> None:
        if self._digest is not None and self._queue is not None:
            self._queries.quit(self._digest, self._queue)
