"""`IgnisManager`: one query per queue that has a handler, kept in step with the catalog."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_ignis.consuming import consume
from pyspark_ignis.consuming_many import consume_many, why_apart
from pyspark_ignis.managed_query import (
    Assignment,
    ManagedQuery,
    QueueState,
    consume_arguments,
    stop_between_batches,
)
from pyspark_ignis.query_plan import checkpoint_folder, folder_text
from pyspark_ignis.shared_queries import SharedQueries, SharedQuery
from pyspark_ignis.side_tasks import (
    STREAM,
    THREAD,
    check_side_tasks,
    mark_of,
    name_of,
    running_as,
    side_task_stream,
)
from queue_core.catalog import queues
from queue_core.catalog.records import figures
from queue_core.errors import BadOption, CatalogUnavailable, NoSuchQueue
from queue_core.queue import Queue
from queue_core.store import Store
from queue_core.support.loop import Loop
from queue_core.upkeep.tasks.background import TASK_SECONDS, TaskThread, background_tasks
from queue_core.upkeep.tasks.expire import retire
from queue_core.upkeep.tasks.registry import TASKS, check_tasks
from queue_core.values.address import handed_on
from queue_core.values.durations import Duration, check_seconds
from queue_core.values.model import QueueInfo
from queue_core.values.names import nearest
from queue_core.values.options import CLIENT_ID
from queue_core.values.settings import check_count

#: Seconds between two refreshes, and from the start to the first refresh. Source: IgnisMQ.
REFRESH_SECONDS = 300.0
FIRST_REFRESH_SECONDS = 60.0
#: Seconds that a running micro-batch gets to finish when its query is stopped. Source: IgnisMQ.
GRACE_SECONDS = 10.0
#: Seconds between two looks for shared queries that have failed.
MENDING_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """The messages of a queue, counted since its creation. Source: IgnisMQ."""

    #: Messages loaded by producers.
    published: int
    #: Messages that were finished, and therefore deleted.
    consumed: int
    #: Moves to the sideline, of messages that failed, got stuck, were put off (`Later`) or were
    #: moved by a person. Two failures count twice.
    sidelined: int
    #: Moves back to main.
    shovelled: int
    #: Messages in main now, waiting or in flight.
    unconsumed: int


class IgnisManager:
    """
    Keeps one `consume` query running for each active queue of a store that has a handler.

    It also runs the side tasks for all queues of the store, including queues of pools and of other
    queries. Of several managers, only the elected leader sweeps. At each refresh, the manager reads
    the catalog: it starts queries for new queues, deactivates or drops queues that are too old,
    stops the queries of deactivated queues, and restarts failed queries, except those whose handler
    was refused. Running queries apply changed settings themselves. Source: IgnisMQ.

    Use it in a ``with`` statement, which starts and stops it. Threads can share it.

    Args:
        spark: The Spark session.
        handlers: For each queue name, a handler as for `consume`, or a dict of arguments of
            `consume` that includes ``handler``. `add_handler` and `remove_handler` change them.
        checkpoints: Folder of this manager alone for checkpoints, one per query, named by queue.
        path: Folder of an embedded store. Give either *path* or *catalog* and *storage*.
        catalog: Database URL of the catalog.
        storage: Folder or URI of the segment files.
        refresh_interval: Seconds, or a text such as ``"1m"`` or a ``timedelta``, between two
            refreshes, 0 or more.
        first_refresh: Likewise, from the start to the first refresh.
        zookeeper: Servers of the ZooKeeper that elects the leader, as ``host:port``, separated by
            commas. By default, a lease in the catalog elects the leader.
        client_id: With *zookeeper*, the name of the group of managers that elect one leader.
            Each store needs another name, since a leader sweeps its own store alone.
        shared: Whether queues with the same columns share one query, as `consume_many` runs it,
            instead of one query per queue. A thousand queues then cost one Python process, and a
            slow handler delays the other queues. A queue whose handler is a Column, or whose
            arguments `consume_many` does not know, keeps its own query. Queues that have the
            messages of one log are in different queries. A shared query that fails is started again
            within 10 seconds.
        max_messages: At most this many messages in one micro-batch of a query, 1 or more, unless a
            handler's arguments have their own. The queues of a shared query share it evenly, or by
            their setting ``weight``. By default, all waiting messages.
        tasks: The side tasks to run, by name. The default names all of them.
        side_tasks: Where they run. ``thread``: in threads of this process. ``stream``: in a query
            of their own, whose tasks run on the executors; `side_task_query` is this query, and its
            progress shows what it moved. While `consume` runs such a query in this session, the
            manager has none. ``none``: nowhere.

    Raises:
        BadOption: An argument is unknown, malformed or out of range.
        BadName: A queue name in *handlers* is not allowed.
        NoSuchStore: There is no store at that address.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        handlers: Mapping[str, Assignment],
        checkpoints: str | Path,
        path: str | Path | None = None,
        catalog: str | None = None,
        storage: str | None = None,
        refresh_interval: Duration = REFRESH_SECONDS,
        first_refresh: Duration = FIRST_REFRESH_SECONDS,
        zookeeper: str | None = None,
        client_id: str = CLIENT_ID,
        shared: bool = False,
        max_messages: int | None = None,
        tasks: Collection[str] = TASKS,
        side_tasks: str = "thread",
    ) -> None:
        self._spark = spark
        there = "each query keeps its checkpoint"
        text = folder_text("checkpoints", checkpoints, there)
        self._checkpoints = checkpoint_folder(folder_text("checkpoints", text.rstrip("/"), there))
        self._most = check_count("max_messages", max_messages)
        self._every = check_seconds("refresh_interval", refresh_interval)
        self._first = check_seconds("first_refresh", first_refresh)
        self._address: dict[str, Any] = handed_on(path, catalog, storage)
        self._shared = (
            SharedQueries(self._consume_many, self._checkpoints, GRACE_SECONDS) if shared else None
        )
        self._queries: dict[str, ManagedQuery | SharedQuery] = {
            queue: self._managed(queue, given)
            for queue, given in consume_arguments(handlers).items()
        }
        #: The queues, as of the last refresh.
        self._infos: list[QueueInfo] = []
        self._in_threads = check_side_tasks(side_tasks) == THREAD
        self._tasks = tasks = check_tasks(tasks)
        self._store = Store.open(path, catalog=catalog, storage=storage, create=False)
        #: Makes the thread of the side tasks, which can be started once.
        self._task_thread = partial(
            background_tasks,
            self._store.catalog,
            self._store.storage,
            None,
            known=lambda: self._infos,
            tasks=tasks,
            zookeeper=zookeeper,
            client_id=client_id,
        )
        try:
            # Here too, since it refuses a wrong address of ZooKeeper.
            self._task_thread()
        except BaseException:
            self._store.close()
            raise
        #: The query of side tasks, if they run in one.
        self._task_query: ManagedQuery | None = None
        if side_tasks == STREAM and tasks:
            options = {
                "zookeeper": zookeeper,
                "clientId": client_id,
                "refreshInterval": self._every,
            }
            self._task_query = ManagedQuery(
                partial(side_task_stream, spark, self._address | options, self._checkpoints, tasks)
            )
        self._started = False
        #: Those of the last start, which may have ended.
        self._threads: list[Loop | TaskThread] = []
        #: Held while queries are started or stopped; re-entrant, because refreshes nest.
        self._lock = threading.RLock()

    def start(self) -> None:
        """
        Start the queries and the side tasks; a second call changes nothing.

        If a query cannot be started, the others run all the same; `state` shows the error.
        """
        with self._lock:
            if self._started:
                return
            self._started = True
            self._threads = []
            try:
                self.refresh()
                refresh = Loop("refresh", self.refresh, every=self._every, first=self._first)
                self._threads.append(refresh)
                if self._shared is not None or self._task_query is not None:
                    self._threads.append(Loop("mending", self._mend, every=MENDING_SECONDS))
                if self._in_threads:
                    self._threads.append(self._task_thread())
                for thread in self._threads:
                    thread.start()
                if not self._started:  # A signal handler has called `stop` meanwhile.
                    self.stop()
            except BaseException:
                self.stop(grace=0)
                raise

    def stop(self, grace: Duration = GRACE_SECONDS) -> None:
        """
        Stop the queries, each after its current micro-batch, and the side tasks.

        A second call changes nothing. Messages of a micro-batch that does not finish in time are
        handled again when a query with the same checkpoint starts.

        Args:
            grace: Seconds, or a text such as ``"30s"`` or a ``timedelta``, to wait for the current
                micro-batches, 0 or more.

        Raises:
            BadOption: *grace* is out of range.
        """
        patience = check_seconds("grace", grace)
        with self._lock:
            # A start by another thread is over now, and has begun all of its threads.
            self._started = False
            threads = self._threads
        # Without the lock, because a refresh that is still running may need it.
        for thread in threads:
            thread.stop(max(patience, TASK_SECONDS))
        with self._lock:
            if self._started:  # Another thread has started it again meanwhile.
                return
            every = [*self._queries.values(), *([self._task_query] if self._task_query else [])]
            stop_between_batches({managed.running for managed in every}, patience)
            for managed in every:
                managed.leave("stopped")
            if self._shared is not None:
                self._shared.settle_in(self._store.catalog)
            # Not for good: the figures of a stopped manager can be read.
            self._store.catalog.close()

    def refresh(self) -> None:
        """Read the catalog now, and start and stop queries accordingly if the manager runs."""
        with self._lock:
            infos = self._read()
            for info in infos:
                # While the clock is in doubt, no queue ends by its age, and the rest goes on.
                with suppress(CatalogUnavailable, NoSuchQueue):
                    retire(self._store.catalog, info)
            self._infos = self._read()
            if not self._started:
                return
            existing = {info.name: info for info in self._infos}
            for queue, managed in self._queries.items():
                if queue not in existing:
                    managed.leave("absent")
                elif existing[queue].deactivated_at is not None:
                    managed.leave("deactivated")
                else:
                    managed.attend([existing[queue]])
            if self._shared is not None:
                self._shared.settle_in(self._store.catalog)
            if self._task_query is not None and self._lacks_tasks():
                self._task_query.attend([])
            if not self._started:  # A signal handler has called `stop` meanwhile.
                self.stop()

    def create_queue(
        self,
        name: str,
        schema: pa.Schema | type,
        *,
        handler: Assignment | None = None,
        **arguments: Any,
    ) -> Queue:
        """
        Create a queue, as `Store.create_queue`, and start the query of its handler.

        Source: IgnisMQ, ``createQueue`` with a handler.

        Args:
            name: The queue's name.
            schema: The columns, or a dataclass or pydantic model.
            handler: Its handler, as for `add_handler`. By default, none.
            **arguments: The other arguments of `Store.create_queue`, such as ``shards`` and
                settings.

        Returns:
            The queue, which can be used until the manager is stopped.

        Raises:
            BadName: The name of the queue or of a column is not allowed.
            BadOption: An argument is unknown or out of range, or the queue has a handler already.
            SchemaMismatch: A type is not supported, or the key is not a suitable column.
            QueueExists: The store has a queue of that name.
            QueueDeactivated: A deactivated queue still has that name.
        """
        with self._lock:
            given = None if handler is None else self._checked(name, handler)
            queue = self._store.create_queue(name, schema, **arguments)
            if given is not None:
                self._queries[name] = self._managed(name, given)
            self.refresh()
            return queue

    def add_handler(self, queue: str, handler: Assignment) -> None:
        """
        Give a queue a handler, and start its query if the manager runs and the queue exists.

        Source: IgnisMQ, handlers of queues that are created at runtime.

        Args:
            queue: The queue's name. The queue may be created later.
            handler: A handler as for `consume`, or a dict of arguments of `consume` that includes
                ``handler``.

        Raises:
            BadName: The name is not allowed.
            BadOption: The queue has a handler already, or an argument is unknown.
        """
        with self._lock:
            self._queries[queue] = self._managed(queue, self._checked(queue, handler))
            self.refresh()

    def remove_handler(self, queue: str, grace: Duration = GRACE_SECONDS) -> None:
        """
        Stop the query of a queue after its current micro-batch, and forget the handler.

        A handler that is added later continues with the same checkpoint.

        Args:
            queue: The queue's name.
            grace: Seconds, or a text such as ``"30s"`` or a ``timedelta``, to wait for the current
                micro-batch, 0 or more.

        Raises:
            BadOption: The queue has no handler, or *grace* is out of range.
        """
        patience = check_seconds("grace", grace)
        with self._lock:
            if queue not in self._queries:
                raise BadOption(
                    f"queue {queue!r} has no handler{nearest(queue, self._queries)}; queues with "
                    f"handlers: {', '.join(self._queries) or 'none'}"
                )
            managed = self._queries.pop(queue)
            stop_between_batches([managed.running], patience)
            managed.leave("stopped")
            if self._shared is not None:
                # The other queues of its query go on.
                self.refresh()

    def increase_consumers(self, queue: str, by: int = 1) -> int:
        """
        Raise a queue's setting ``concurrency``, up to 100. Queries of all processes follow it.

        Args:
            queue: The queue's name.
            by: How much to add.

        Returns:
            The concurrency, as it is now.

        Raises:
            NoSuchQueue: The store has no queue of that name.
            BadOption: *by* is not a whole number.
        """
        return self._scale(queue, by)

    def decrease_consumers(self, queue: str, by: int = 1) -> int:
        """
        Lower a queue's setting ``concurrency``; 0 pauses the queue.

        Args:
            queue: The queue's name.
            by: How much to subtract.

        Returns:
            The concurrency, as it is now.

        Raises:
            NoSuchQueue: The store has no queue of that name.
            BadOption: *by* is not a whole number.
        """
        return self._scale(queue, -by)

    def schedule_shovel(
        self, queue: str, interval: Duration | None, concurrency: int | None = None
    ) -> None:
        """
        Change how often a queue is shovelled, from now on.

        In a queue with the setting ``retry``, messages come back at their own times instead.

        Args:
            queue: The queue's name.
            interval: Seconds, or a text such as ``"10m"`` or a ``timedelta``, between two shovels,
                more than 0; None to shovel only on request.
            concurrency: How many transactions of one shovel run at the same time, 1 to 50. By
                default, the setting does not change.

        Raises:
            NoSuchQueue: The store has no queue of that name.
            BadOption: *interval* or *concurrency* is out of range.
        """
        settings: dict[str, Any] = {"shovel_interval": interval}
        if concurrency is not None:
            settings["shovel_concurrency"] = concurrency
        self._store.queue(queue).admin.change_settings(**settings)
        self.refresh()

    def shovel(
        self,
        queue: str,
        limit: int | None = None,
        *,
        selector: str | None = None,
        rate: float | None = None,
        force: bool = False,
    ) -> int:
        """
        Move a queue's sidelined messages back to main now, as `Queue.shovel`.

        Args:
            queue: The queue's name.
            limit: At most this many messages, 1 or more. By default, the setting ``shovel_limit``.
            selector: Only messages that meet this SQL condition.
            rate: At most this many messages a second, more than 0. By default, the setting
                ``shovel_rate``.
            force: Whether to also move dead messages, and those that were fired too often.

        Returns:
            How many messages were moved.

        Raises:
            NoSuchQueue: The store has no queue of that name.
            BadOption: An argument is out of range.
            BadSelector: *selector* cannot be understood.
        """
        return self._store.queue(queue).shovel(limit, selector=selector, rate=rate, force=force)

    def sweep(self, queue: str, older_than: Duration | None = None) -> int:
        """
        Sideline a queue's stuck messages now, as `Queue.sweep`. Any process may do this.

        Args:
            queue: The queue's name.
            older_than: Seconds, or a text such as ``"15m"`` or a ``timedelta``, since the firing, 0
                or more. By default, the setting ``sweep_after``.

        Returns:
            How many messages were moved.

        Raises:
            NoSuchQueue: The store has no queue of that name.
            BadOption: *older_than* is out of range.
        """
        return self._store.queue(queue).sweep(older_than)

    def deactivate(self, queue: str) -> None:
        """
        Deactivate a queue for good, as `QueueAdmin.deactivate`, and stop its query.

        Args:
            queue: The queue's name.

        Raises:
            NoSuchQueue: The store has no queue of that name.
        """
        self._store.queue(queue).admin.deactivate()
        self.refresh()

    def stats(self) -> dict[str, QueueStats]:
        """
        Count the messages of each queue since its creation, over all processes.

        Returns:
            The counts, by queue name.
        """
        with self._store.catalog.read() as connection:
            rows = figures.read(connection, counters=True)
        return {
            row.queue: QueueStats(
                # Without those that have come back from the sideline.
                published=row.main_loaded,
                consumed=row.main_deleted + row.sideline_deleted,
                sidelined=row.main_sidelined + row.main_swept,
                shovelled=row.sideline_returned,
                unconsumed=row.waiting + row.main_in_flight,
            )
            for row in sorted(rows, key=lambda row: str(row.queue))
        }

    def state(self) -> dict[str, QueueState]:
        """
        Report the present state of the query of each queue that has a handler.

        Returns:
            The states, by queue name.
        """
        paused: set[str] = set()
        if self._started:
            # While the catalog cannot be reached, none is known to be paused.
            with suppress(CatalogUnavailable):
                paused = {info.name for info in self._read() if info.is_paused}
        # A copy, because handlers come and go.
        managed = dict(self._queries)
        return {queue: each.state(queue in paused) for queue, each in managed.items()}

    @property
    def side_task_query(self) -> StreamingQuery | None:
        """The query that runs the side tasks; None if it does not run, or they have none."""
        return None if self._task_query is None else self._task_query.running

    def __enter__(self) -> IgnisManager:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        states = ", ".join(f"{queue}: {state}" for queue, state in self.state().items())
        return f"<IgnisManager of {self._store!r}; {states or 'no handlers'}>"

    def _checked(self, queue: str, handler: Assignment) -> dict[str, Any]:
        """Return the arguments of `consume` for a queue that has no handler yet."""
        (given,) = consume_arguments({queue: handler}).values()
        if queue in self._queries:
            raise BadOption(f"queue {queue!r} has a handler already; remove it first")
        return given

    def _managed(self, queue: str, given: Mapping[str, Any]) -> ManagedQuery | SharedQuery:
        if self._shared is not None and why_apart(given) is None:
            return SharedQuery(self._shared, given)
        return ManagedQuery(partial(self._consume, queue, given))

    def _scale(self, queue: str, by: int) -> int:
        concurrency = self._store.queue(queue).admin.scale(by)
        self.refresh()
        return concurrency

    def _mend(self) -> None:
        """Restart failed queries on which many queues depend, before the next refresh is due."""
        shared, tasks = self._shared, self._task_query
        with self._lock:
            failed = shared is not None and shared.failed
            lost = tasks is not None and tasks.state().status != "ended" and self._lacks_tasks()
            if failed or lost:
                self.refresh()

    def _lacks_tasks(self) -> bool:
        """Whether no query of the session runs the side tasks; `consume` may have started one."""
        names = {name_of(self._address), name_of(self._address, self._tasks)}
        return not any(running_as(self._spark, name) for name in names)

    def _read(self) -> list[QueueInfo]:
        with self._store.catalog.read() as connection:
            return queues.find_all(connection)

    def _name(self, what: str) -> str:
        """Return the name of a query, with the store's mark if another manager's has it already."""
        name = f"ignis:{what}"
        return f"{name} {mark_of(self._address)}" if running_as(self._spark, name) else name

    def _consume(self, queue: str, given: Mapping[str, Any]) -> StreamingQuery:
        return consume(self._spark, queue, **{**self._arguments(queue), **given})

    def _consume_many(self, name: str, handlers: Mapping[str, Any]) -> StreamingQuery:
        return consume_many(self._spark, handlers, **self._arguments(name))

    def _arguments(self, what: str) -> dict[str, Any]:
        """Return the arguments of a query, named as its checkpoint, that all queries get."""
        return {
            "checkpoint": f"{self._checkpoints}/{what}",
            "name": self._name(what),
            "refreshInterval": self._every,
            # The manager runs the side tasks of all queues.
            "tasks": "none",
            "max_messages": self._most,
            **self._address,
        }
