"""The registry of side tasks: one row each. Importing it needs no database."""

from collections.abc import Collection

from queue_core.errors import BadOption
from queue_core.upkeep.tasks.task import Task, Timing
from queue_core.values.names import nearest

_ROWS = (
    Task(
        name="shovel",
        run="queue_core.upkeep.tasks.shovel:run",
        setting="shovel_interval",
        replaced_by="retry",
        living_only=True,
        chooser="queue_core.upkeep.tasks.shovel:with_work",
        divider="queue_core.upkeep.tasks.shovel:shares",
    ),
    Task(
        name="sweep",
        run="queue_core.upkeep.tasks.sweep:run",
        # Source: IgnisMQ.
        timing=Timing(900.0, first=600.0),
        leader_only=True,
        finder="queue_core.upkeep.tasks.sweep:find_queues",
    ),
    Task(
        name="expire",
        run="queue_core.upkeep.tasks.expire:run",
        timing=Timing(300.0),
        chooser="queue_core.upkeep.tasks.expire:with_work",
    ),
    Task(
        name="compact",
        run="queue_core.upkeep.tasks.compaction:run",
        timing=Timing(300.0),
        chooser="queue_core.upkeep.tasks.compaction:with_work",
        living_only=True,
        divider="queue_core.upkeep.tasks.compaction:shares",
    ),
    Task(
        name="trim",
        run="queue_core.upkeep.tasks.trim:run",
        timing=Timing(60.0),
        chooser="queue_core.upkeep.tasks.trim:with_work",
    ),
    Task(
        name="vacuum",
        run="queue_core.upkeep.tasks.vacuum:run",
        timing=Timing(3600.0),
        of_store=True,
        divider="queue_core.upkeep.tasks.vacuum:shares",
    ),
    Task(
        name="sample",
        run="queue_core.upkeep.tasks.sample:run",
        timing=Timing(10.0),
        of_store=True,
        brief=True,
    ),
    Task(
        name="fsck",
        run="queue_core.upkeep.tasks.fsck:run",
        # It reads the whole catalog. It is the last one, because it reports a task whose time is in
        # the future, and such a task has run again by then.
        timing=Timing(86_400.0),
        of_store=True,
        divider="queue_core.upkeep.tasks.fsck:shares",
    ),
)

#: Each task by its name, in the order in which they run when several are due.
REGISTRY = {task.name: task for task in _ROWS}
#: The names of the tasks.
TASKS = tuple(REGISTRY)


def check_task(name: str) -> str:
    """Return *name* if a task has it; raises `BadOption`."""
    if name not in REGISTRY:
        raise BadOption(f"task={name!r}{nearest(str(name), TASKS)}; use {', '.join(TASKS)}")
    return name


def check_tasks(names: Collection[str]) -> tuple[str, ...]:
    """Return *names* if they are names of tasks; raises `BadOption`."""
    if isinstance(names, str):
        raise BadOption(f"tasks={names!r}: give a list of names, such as ['sweep']")
    return tuple(check_task(name) for name in names)
