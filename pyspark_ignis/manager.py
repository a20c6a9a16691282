"""`IgnisManager`: a query for each queue that has a handler, kept in step with the catalog."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_ignis.consuming import consume
from pyspark_ignis.managed_query import (
    Assignment,
    ManagedQuery,
    QueueState,
    arguments,
    stop_between_batches,
)
from pyspark_ignis.periodic import PeriodicThread
from pyspark_ignis.queue_stats import QueueStats, queue_stats
from queue_core.catalog import queues
from queue_core.errors import BadOption
from queue_core.leader import CLIENT_ID, candidate
from queue_core.model import QueueInfo
from queue_core.settings import check_seconds
from queue_core.store import Store
from queue_core.tasks.registry import TASKS
from queue_core.tasks.retirement import retire
from queue_core.tasks.runner import SideTasks

#: Seconds between two refreshes, and from the start to the first of them. Source: IgnisMQ.
REFRESH_SECONDS = 300.0
FIRST_REFRESH_SECONDS = 60.0
#: Seconds that a micro-batch is given to end in when its query is stopped. Source: IgnisMQ.
GRACE_SECONDS = 10.0
#: Seconds between two looks at which side tasks are due.
LOOK_SECONDS = 1.0


class IgnisManager:
    """
    Keeps a `consume` query running for each queue of a store that is in use and has a handler.

    *handlers* holds them by the names of their queues: a handler, or a dict of arguments of
    `consume`, of which one is ``handler``. *checkpoints* is the folder of the queries' checkpoints,
    each under its queue's name. The manager runs the store's side tasks too, those in *tasks*, for
    all queues; *zookeeper* and *client_id* say how the leader is elected that sweeps (see
    `queue_core.leader.candidate`).

    Every *refresh_interval* seconds, first after *first_refresh*, and whenever `refresh` is called,
    it reads the catalog: new queues get their query, those that are too old are given up, those
    that were given up lose it, and a query that has failed is started again. Running queries read
    their queue's settings by themselves.

    ``with IgnisManager(…):`` starts and stops it. Safe for threads. Raises `BadOption`, `BadName`,
    `NoSuchStore`.
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
        refresh_interval: float = REFRESH_SECONDS,
        first_refresh: float = FIRST_REFRESH_SECONDS,
        zookeeper: str | None = None,
        client_id: str = CLIENT_ID,
        tasks: Collection[str] = TASKS,
    ) -> None:
        self._spark = spark
        self._checkpoints = str(checkpoints).rstrip("/")
        if not self._checkpoints:
            raise BadOption("checkpoints: give a folder, in which each query keeps its own")
        self._every = check_seconds("refresh_interval", refresh_interval)
        self._first = check_seconds("first_refresh", first_refresh)
        self._where: dict[str, Any] = {"path": path, "catalog": catalog, "storage": storage}
        self._queries = {
            queue: ManagedQuery(partial(self._consume, queue, given))
            for queue, given in arguments(handlers).items()
        }
        #: What the last refresh has read.
        self._infos: list[QueueInfo] = []
        self._store = Store.open(path, catalog=catalog, storage=storage, create=False)
        try:
            self._leader = candidate(
                self._store.catalog,
                zookeeper=zookeeper,
                client_id=client_id,
                partitions=lambda: [i.name for i in self._infos if i.deactivated_at is None],
            )
            self._side = SideTasks(
                self._store.catalog, self._store.storage, self._leader, tasks=tasks
            )
        except BaseException:
            self._store.close()
            raise
        self._started = False
        self._tickers: list[PeriodicThread] = []
        #: Who changes what is running. Taken again by whoever has it.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start the queries and the side tasks; a second time changes nothing."""
        with self._lock:
            if self._started:
                return
            self._started = True
            try:
                self.refresh()
                self._leader.start()
            except BaseException:
                self.stop(grace=0)
                raise
            self._tickers = [
                PeriodicThread("ignis-refresh", self.refresh, self._every, self._first),
                PeriodicThread(
                    "ignis-tasks", lambda: self._side.run_due(self._infos), LOOK_SECONDS
                ),
            ]
            for ticker in self._tickers:
                ticker.start()

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """
        Stop the queries, each when its micro-batch is done, and the side tasks; twice is fine.

        What is still worked on after *grace* seconds is handled again when the manager is started
        anew, by this process or another.
        """
        check_seconds("grace", grace)
        # Without the lock, which a refresh that is to end may need.
        tickers, self._tickers = self._tickers, []
        for ticker in tickers:
            ticker.stop()
        with self._lock:
            running = [query for managed in self._queries.values() if (query := managed.running)]
            stop_between_batches(running, grace)
            for managed in self._queries.values():
                managed.leave("stopped")
            self._leader.stop()
            self._started = False
            self._store.close()

    def refresh(self) -> None:
        """Bring what is running in step with the catalog, now. Before `start` it only reads."""
        with self._lock:
            for info in self._read():
                retire(self._store.catalog, info)
            self._infos = self._read()
            if not self._started:
                return
            there = {info.name: info for info in self._infos}
            for queue, managed in self._queries.items():
                if queue not in there:
                    managed.leave("absent")
                elif there[queue].deactivated_at is not None:
                    managed.leave("deactivated")
                else:
                    managed.attend(there[queue])

    def increase_consumers(self, queue: str, by: int = 1) -> int:
        """
        Raise a queue's concurrency, to 100 at most; returns what it is now.

        It is a setting: it stays, and reaches the queries of other processes too.
        """
        return self._scale(queue, by)

    def decrease_consumers(self, queue: str, by: int = 1) -> int:
        """Lower a queue's concurrency; at 0 it is paused. As `increase_consumers`."""
        return self._scale(queue, -by)

    def schedule_shovel(
        self, queue: str, interval: float | None, concurrency: int | None = None
    ) -> None:
        """
        Shovel a queue every *interval* seconds, or only when asked, from now on.

        *concurrency* is how many transactions run side by side; unless given, it stays.
        """
        settings: dict[str, Any] = {"shovel_interval": interval}
        if concurrency is not None:
            settings["shovel_concurrency"] = concurrency
        self._store.queue(queue).change_settings(**settings)
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
        """Shovel a queue once, now; returns how many messages were moved (`Queue.shovel`)."""
        return self._store.queue(queue).shovel(limit, selector=selector, rate=rate, force=force)

    def sweep(self, queue: str, older_than: float | None = None) -> int:
        """Sweep a queue now, whoever leads; returns how many messages moved (`Queue.sweep`)."""
        return self._store.queue(queue).sweep(older_than)

    def deactivate(self, queue: str) -> None:
        """Give a queue up, for good, and stop its query (`Queue.deactivate`)."""
        self._store.deactivate(queue)
        self.refresh()

    def stats(self) -> dict[str, QueueStats]:
        """What each queue of the store has seen, by its name; of all processes."""
        return queue_stats(self._store)

    def state(self) -> dict[str, QueueState]:
        """How it stands with each queue that has a handler."""
        return {queue: managed.state() for queue, managed in self._queries.items()}

    def __enter__(self) -> IgnisManager:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        told = ", ".join(f"{queue}: {state}" for queue, state in self.state().items())
        return f"<IgnisManager of {self._store!r}; {told or 'no handlers'}>"

    def _scale(self, queue: str, by: int) -> int:
        concurrency = self._store.queue(queue).scale(by)
        self.refresh()
        return concurrency

    def _read(self) -> list[QueueInfo]:
        with self._store.catalog.read() as connection:
            return queues.find_all(connection)

    def _consume(self, queue: str, given: Mapping[str, Any]) -> StreamingQuery:
        checkpoint = f"{self._checkpoints}/{queue}"
        how: dict[str, Any] = {
            "name": f"ignis:{queue}",
            "refreshInterval": self._every,
            # The manager runs them, for all queues.
            "tasks": "none",
            **given,
        }
        return consume(self._spark, queue, checkpoint=checkpoint, **self._where, **how)
