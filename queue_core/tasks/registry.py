"""Which side tasks there are. Needs no catalog."""

from queue_core.errors import BadOption
from queue_core.model import QueueInfo
from queue_core.names import nearest

#: The tasks, in the order in which they are run when several are due.
TASKS = ("shovel", "sweep", "expire", "compact", "vacuum")
#: Those of the store as a whole.
OF_THE_STORE = frozenset({"vacuum"})
#: Those that only the leader runs.
OF_THE_LEADER = frozenset({"sweep"})
#: Those that a queue which was given up needs no more.
OF_THE_LIVING = frozenset({"shovel", "compact"})


def check_task(task: str) -> str:
    """Return *task* if there is one of that name; raises `BadOption`."""
    if task not in TASKS:
        raise BadOption(f"task={task!r}{nearest(str(task), TASKS)}; use {', '.join(TASKS)}")
    return task


def concerns(task: str, queue: QueueInfo) -> bool:
    """Whether a task has anything to do for a queue."""
    return queue.deactivated_at is None or task not in OF_THE_LIVING
