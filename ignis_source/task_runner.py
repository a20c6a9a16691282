"""Make the runner of a query's side tasks from its options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ignis_source.options import SourceOptions
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.upkeep.leader import Leader, candidate
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.upkeep.tasks.task import Timing
from queue_core.values.model import QueueInfo
from queue_core.verbs.shovel import Shovelful

#: Returns the queues of a query, with their settings as of the last refresh.
Known = Callable[[], Sequence[QueueInfo]]


def make_runner(
    store: StoreHandle, options: SourceOptions, queues: Known
) -> tuple[SideTasks, Leader]:
    """
    Return a runner of the tasks that the options name, and its leader, not yet started.

    Raises `BadOption` or `BadSelector`.
    """
    leader = candidate(
        store.catalog,
        zookeeper=options.zookeeper,
        client_id=options.client_id,
        partitions=lambda: [queue.name for queue in queues()],
    )
    return make_tasks(store, options, queues(), leader), leader


def make_tasks(
    store: StoreHandle, options: SourceOptions, queues: Sequence[QueueInfo], leader: Leader
) -> SideTasks:
    """Return a runner of the tasks that the options name, for a leader; raises `BadSelector`."""

    def shovelful(queue: QueueInfo) -> Shovelful:
        selector = options.selector if options.reports else None
        usual = Shovelful.of(queue, store.storage.uri, selector)
        return replace(usual, limit=options.limit or usual.limit, rate=options.rate or usual.rate)

    for queue in queues:
        # A selector that does not fit a queue is refused before any task runs.
        shovelful(queue)
    timings = {}
    if options.interval is not None:
        timings = {task: Timing(options.interval) for task in options.tasks}
    return SideTasks(
        store.catalog,
        store.storage,
        leader,
        tasks=options.tasks,
        timings=timings,
        shovelful=shovelful,
        deep=options.deep,
        # They would come back whatever the options choose.
        retries=not (options.reports and (options.selector or options.limit or options.rate)),
    )
