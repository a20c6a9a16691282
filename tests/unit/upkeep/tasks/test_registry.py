"""The registry of side tasks: each row names a function that does the steps of the protocol."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from queue_core.upkeep.tasks.registry import REGISTRY, TASKS

PAGE = Path(__file__).parents[4].joinpath("docs/protocol.md").read_text()
ROWS = [
    [cell.strip() for cell in row.split("|")[1:-1]]
    for row in re.search(r"\| task \| parts \|.*?\n\n", PAGE, re.DOTALL)[0].splitlines()[2:]
    if row
]
#: The verbs and clean-ups of each task, in their order.
STEPS = {name: steps.split(", ") for name, steps, *_ in ROWS}
#: The tasks that tell queues with work for them from others, and those whose work can be divided.
CHOOSING = {"shovel", "expire", "compact", "trim"}
DIVIDED = {"shovel", "compact", "vacuum", "fsck"}


def said_of(task):
    """The row of a task on the protocol's page, without its steps."""
    if task.timing is None:
        when = "the queue's `shovel_interval`"
    elif task.timing.first is None:
        every = task.timing.every
        when = f"every {every / 60:.0f} minutes" if every >= 60 else f"every {every:.0f} seconds"
    else:
        when = (
            f"every {task.timing.every / 60:.0f} minutes, first after {task.timing.first / 60:.0f}"
        )
    process = "the leader" if task.leader_only else "any"
    runs_on = "the store" if task.of_store else "queues in use" if task.living_only else "queues"
    if task.leader_only:
        runs_on = "all queues of the store"
    return [task.name, runs_on, when, process]


@pytest.mark.parametrize("task", REGISTRY.values(), ids=TASKS)
def test_a_row_says_what_does_its_steps_when_and_for_which_queues(task):
    function = task.function()
    source = inspect.getsource(function)
    assert next(iter(inspect.signature(function).parameters)) == "context"
    calls = [source.index(f"{step}(") for step in STEPS[task.name]]
    assert calls
    assert calls == sorted(calls)
    assert (task.timing is None) == (task.name == "shovel")
    module = importlib.import_module(function.__module__)
    assert hasattr(module, "find_queues") == task.leader_only
    assert hasattr(module, "with_work") == task.chooses == (task.name in CHOOSING)
    assert hasattr(module, "shares") == (task.name in DIVIDED)
    if task.chooses:
        assert not task.leader_only
        assert not task.of_store
        assert len(inspect.signature(module.with_work).parameters) == 2


def test_the_page_has_a_row_for_each_task():
    assert [said_of(task) for task in REGISTRY.values()] == [
        [name, *rest] for name, _, *rest in ROWS
    ]


def test_the_registry_needs_no_database():
    code = "import sys; import queue_core.upkeep.tasks.registry; print('sqlalchemy' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout == "False\n"
