"""Each problem is found when the figures show it, and not otherwise."""

from dataclasses import replace

import pytest

from ignis_console.problems import find
from queue_core.watching.present import (
    FailedJob,
    Figures,
    FigureSample,
    Holder,
    OpenBreaker,
    QueueFigures,
)

WELL = QueueFigures(
    name="orders",
    state="active",
    waiting=10,
    oldest_age=5.0,
    longest_wait=5.0,
    in_flight=2,
    sidelined=3,
    retrying=3,
    dead=0,
    damaged=0,
    shards=8,
    concurrency=8,
    max_size=None,
    overflow="block",
    paused_for=None,
    retries=True,
    overdue_for=None,
    shovelled_before=None,
    shovel_interval=600.0,
)
TASKS = {"sample": 5.0, "sweep": 800.0, "expire": 100.0, "compact": 100.0, "vacuum": 3000.0}


def sample(sidelined):
    return FigureSample(0.0, 1, 1.0, 1.0, 0, sidelined, None, None, None, None, None)


def kinds(*queues, **others):
    figures = Figures(now=0, queues=queues, **({"tasks": TASKS} | others))
    return [problem.kind for problem in find(figures, 900.0)]


def test_a_healthy_store_has_no_problems():
    assert kinds(WELL) == []
    assert kinds(tasks={}) == []


#: A sideline that grows, and no shovel is planned.
GROWING = {
    "retries": False,
    "samples": (sample(2), sample(3)),
    "shovel_interval": 600.0,
    "shovelled_before": 1801.0,
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"longest_wait": 901.0}, ["old"]),
        ({"longest_wait": 900.0}, []),
        ({"longest_wait": None}, []),
        ({"overdue_for": 61.0}, ["overdue"]),
        ({"overdue_for": 60.0}, []),
        ({"dead": 1}, ["dead"]),
        ({"damaged": 1}, ["damaged"]),
        ({"stuck": 1, "stuck_for": 1201.0}, ["stuck"]),
        ({"max_size": 10}, ["full"]),
        ({"max_size": 11}, []),
        ({"max_size": 10, "overflow": "ring"}, []),
        ({"max_size": 0}, []),
        ({"damaged": None, "dead": None, "waiting": None, "max_size": 1}, []),
        ({"paused_for": 3.0}, ["paused"]),
        ({"paused_for": 3.0, "state": "deactivated"}, []),
        # A paused queue is not late as well.
        ({"paused_for": 1.0, "longest_wait": 9999.0}, ["paused"]),
        ({"concurrency": 0, "longest_wait": 9999.0}, ["paused"]),
        (GROWING, ["growing"]),
        (GROWING | {"shovel_interval": None}, ["growing"]),
        (GROWING | {"shovelled_before": None}, ["growing"]),
        (GROWING | {"shovelled_before": 600.0}, []),
        (GROWING | {"retries": True}, []),
        (GROWING | {"sidelined": 2}, []),
        (GROWING | {"sidelined": None}, []),
        (GROWING | {"samples": ()}, []),
        (GROWING | {"samples": (sample(None),)}, []),
    ],
)
def test_the_problems_of_a_queue(change, found):
    assert kinds(replace(WELL, **change)) == found


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"holders": (Holder("till", 3, 100.0, 61.0),)}, ["silent"]),
        ({"holders": (Holder("till", 3, 9999.0, 1.0),)}, []),
        ({"holders": (Holder("till", 3, 3601.0, None),)}, []),
        ({"holders": (Holder("till", 3, None, None),)}, []),
        ({"tasks": {}}, ["tasks"]),
        ({"tasks": {"sample": 601.0, "sweep": 700.0}}, ["tasks"]),
        ({"tasks": TASKS | {"sweep": 2701.0}}, ["task"]),
        ({"tasks": {"sample": 5.0}}, []),
        ({"breakers": (OpenBreaker("bank", "open", 5.0),)}, ["breaker"]),
        ({"failed_jobs": (FailedJob("abc", "orders", None),)}, ["job"]),
    ],
)
def test_the_problems_of_a_store(figures, found):
    assert kinds(WELL, **figures) == found


def test_the_worst_comes_first():
    queues = (replace(WELL, name="a", paused_for=1.0), replace(WELL, name="b", damaged=4))

    assert kinds(*queues) == ["damaged", "paused"]


def test_each_problem_says_what_to_do():
    queue = replace(WELL, longest_wait=7500.0, dead=2, damaged=1, max_size=10)
    for problem in find(Figures(now=0, queues=(queue,)), 900.0):
        assert problem.text.endswith(".")
        assert problem.advice.endswith(".")
