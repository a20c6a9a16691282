"""Side tasks in the process of a streaming query: run when due, beside its batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from ignis_source.handle import StoreHandle
from ignis_source.options import SourceOptions
from queue_core.leader import Leader, candidate
from queue_core.model import QueueInfo
from queue_core.tasks.runner import RETRY_SECONDS, SideTasks
from queue_core.tasks.task import Timing
from queue_core.verbs.shovel import Shovelful

#: Seconds between two looks for what is due.
LOOK_SECONDS = 1.0

#: Tells the queues of a query, with their settings as it knows them.
Known = Callable[[], Sequence[QueueInfo]]

_log = logging.getLogger(__name__)


def runner(store: StoreHandle, options: SourceOptions, queues: Known) -> tuple[SideTasks, Leader]:
    """
    What runs the tasks that the options name, and its leader, not yet started.

    Raises `BadOption` or `BadSelector`.
    """
    leader = candidate(
        store.catalog,
        zookeeper=options.zookeeper,
        client_id=options.client_id,
        partitions=lambda: [queue.name for queue in queues()],
    )

    def shovelful(queue: QueueInfo) -> Shovelful:
        selector = options.selector if options.reports else None
        usual = Shovelful.of(queue, store.storage.uri, selector)
        return replace(usual, limit=options.limit or usual.limit, rate=options.rate or usual.rate)

    for queue in queues():
        # A selector that one of them does not understand is told at once.
        shovelful(queue)
    timings = {}
    if options.interval is not None:
        timings = {task: Timing(options.interval) for task in options.tasks}
    tasks = SideTasks(
        store.catalog,
        store.storage,
        leader,
        tasks=options.tasks,
        timings=timings,
        shovelful=shovelful,
    )
    return tasks, leader


class BackgroundTasks:
    """
    A thread that runs the tasks of a consuming query, one at a time.

    No batch waits for it, and what goes wrong in it is told to the log and to nobody else. It ends
    with its process: what a task has not committed then is done by the next one who comes.
    """

    def __init__(self, store: StoreHandle, options: SourceOptions, queues: Known) -> None:
        self._queues = queues
        self._sweeps = "sweep" in options.tasks
        self._tasks, self._leader = runner(store, options, queues)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ignis-side-tasks", daemon=True)

    def start(self) -> None:
        """Begin to look for what is due."""
        self._thread.start()

    def stop(self) -> None:
        """End when the task that is being run has ended, and let others lead."""
        self._ended.set()
        self._thread.join()
        self._leader.stop()

    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        leads = False
        wait = 0.0
        while not self._ended.wait(wait):
            wait = LOOK_SECONDS
            try:
                if self._sweeps and not leads:
                    self._leader.start()
                    leads = True
                self._tasks.run_due(self._queues())
            except Exception as error:  # noqa: BLE001 - whatever it is, the query goes on
                _log.warning("side tasks: %s; tried again in %g seconds", error, RETRY_SECONDS)
                wait = RETRY_SECONDS
