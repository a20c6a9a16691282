"""Side tasks in the process of a streaming query: run when due, beside its batches."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ignis_source.handle import StoreHandle
from ignis_source.options import SourceOptions
from queue_core.catalog.poller import BLIND_SECONDS

if TYPE_CHECKING:
    from ignis_source.task_runner import Known
    from queue_core.leader import Leader
    from queue_core.tasks.runner import SideTasks

#: Seconds between the start of a query and its first search.
START_SECONDS = 1.0

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """
    A thread that runs the tasks of a consuming query, one at a time.

    No batch waits for it, and its errors go to the log alone. It ends with its process: another
    runner repeats what a task has not committed by then.
    """

    def __init__(self, store: StoreHandle, options: SourceOptions, queues: Known) -> None:
        self._store = store
        self._options = options
        self._queues = queues
        self._made: tuple[SideTasks, Leader] | None = None
        if options.zookeeper is not None:
            # A wrong address, or a missing library, is the user's to correct.
            self._make()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ignis-side-tasks", daemon=True)

    def start(self) -> None:
        """Begin to run due tasks."""
        self._thread.start()

    def stop(self) -> None:
        """End after the task that is running now, and let others lead."""
        self._ended.set()
        self._thread.join()
        if self._made is not None:
            self._made[1].stop()

    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def _make(self) -> tuple[SideTasks, Leader]:
        # Not at the top: the first batch of a query does not wait for what tasks import.
        from ignis_source.task_runner import make_runner

        if self._made is None:
            self._made = make_runner(self._store, self._options, self._queues)
        return self._made

    def _run(self) -> None:
        # The first batch does not compete with the imports of tasks.
        if self._ended.wait(START_SECONDS):
            return
        from queue_core.tasks.runner import RETRY_SECONDS

        leads = False
        wait = 0.0
        while not self._ended.wait(wait):
            wait = BLIND_SECONDS
            try:
                tasks, leader = self._make()
                if "sweep" in self._options.tasks and not leads:
                    leader.start()
                    leads = True
                tasks.run_due(self._queues())
            except Exception as error:  # noqa: BLE001 - whatever it is, the query goes on
                _log.warning("side tasks: %s; tried again in %g seconds", error, RETRY_SECONDS)
                wait = RETRY_SECONDS
