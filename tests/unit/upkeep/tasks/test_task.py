"""A row of the registry: when the task is due, for which queues, and what runs it."""

from types import SimpleNamespace

from queue_core.upkeep.tasks.task import Task, Timing
from queue_core.values.settings import QueueSettings


def task(**values):
    return Task(**{"name": "t"} | values)


def a_queue(deactivated_at=None, **settings):
    return SimpleNamespace(deactivated_at=deactivated_at, settings=QueueSettings(**settings))


def test_the_setting_of_a_queue_counts_without_a_timing():
    shovel = task()

    assert shovel.due(a_queue(shovel_interval=5.0, retry=None)) == Timing(5.0)
    assert shovel.due(a_queue(shovel_interval=None, retry=None)) is None
    assert shovel.due(a_queue(shovel_interval=5.0)) is None
    assert shovel.due(a_queue(shovel_interval=5.0), replaced=False) == Timing(5.0)
    assert task(timing=Timing(600.0, 30.0)).due(None) == Timing(600.0, 30.0)
    assert task(timing=Timing(60.0)).due(a_queue()) == Timing(60.0)


def test_a_deactivated_queue_needs_some_tasks_only():
    gone = a_queue(deactivated_at=5)

    assert task().concerns(gone)
    assert not task(living_only=True).concerns(gone)
    assert task(living_only=True).concerns(a_queue())
