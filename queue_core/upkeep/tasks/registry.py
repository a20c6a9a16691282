"""The registry of side tasks: one row each. Importing it needs no database."""

from collections.abc import Collection

from queue_core.errors import BadOption
from queue_core.upkeep.tasks.task import Task, Timing
from queue_core.values.names import nearest

_ROWS = (
    Task(name="shovel", living_only=True),
    Task(
        name="sweep",
        # Source: IgnisMQ.
        timing=Timing(900.0, first=600.0),
        leader_only=True,
    ),
    Task(name="expire", timing=Timing(300.0)),
    Task(name="compact", module="compaction", timing=Timing(300.0), living_only=True),
    Task(name="trim", timing=Timing(60.0)),
    Task(name="vacuum", timing=Timing(3600.0), of_store=True),
    Task(name="sample", timing=Timing(10.0), of_store=True, brief=True),
    Task(
        name="fsck",
        # It reads the whole catalog. It is the last one, because it reports a task whose time is in
        # the future, and such a task has run again by then.
        timing=Timing(86_400.0),
        of_store=True,
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
