"""Side tasks in the process of a streaming query, run in the background when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ignis_source.options import SourceOptions
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.poller import BLIND_SECONDS
from queue_core.upkeep.tasks.thread import Made, TaskThread, retry_thread

if TYPE_CHECKING:
    from ignis_source.task_runner import Known
    from queue_core.upkeep.tasks.shovel import Retries

#: Seconds between the start of a query and its first search: the first batch does not compete with
#: the imports of tasks.
START_SECONDS = 1.0


def background_tasks(store: StoreHandle, options: SourceOptions, queues: Known) -> TaskThread:
    """Return the thread that runs the tasks of a consuming query; no batch waits for it."""

    def make() -> Made:
        # Not at the top: the first batch of a query does not wait for what tasks import.
        from ignis_source.task_runner import make_runner

        return make_runner(store, options, queues)

    def make_retries() -> Retries:
        from queue_core.upkeep.tasks.shovel import Retries

        return Retries(store.catalog, store.storage)

    def names() -> list[str]:
        return [queue.name for queue in queues()]

    retries = None
    if "shovel" in options.tasks:
        retries = retry_thread(make_retries, names, start=START_SECONDS)
    thread = TaskThread(
        make,
        queues,
        sweeps="sweep" in options.tasks,
        start=START_SECONDS,
        look=BLIND_SECONDS,
        retries=retries,
    )
    if options.zookeeper is not None:
        # The user must correct a wrong address or a missing library.
        thread.prepare()
    return thread
