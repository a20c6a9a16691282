"""Make the runner of a stream of side tasks from its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ignis_source.options import SourceOptions
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.upkeep.leader import Leader
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.upkeep.tasks.task import Timing
from queue_core.values.model import QueueInfo
from queue_core.verbs.shovel import Shovelful


def make_tasks(
    store: StoreHandle, options: SourceOptions, queues: Sequence[QueueInfo], leader: Leader
) -> SideTasks:
    """Return a runner of the tasks that the options name, for a leader; raises `BadSelector`."""

    def shovelful(queue: QueueInfo) -> Shovelful:
        usual = Shovelful.of(queue, store.storage.uri, options.selector)
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
        retries=not (options.selector or options.limit or options.rate),
    )
