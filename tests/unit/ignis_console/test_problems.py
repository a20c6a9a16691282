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
    return FigureSample(0.0, 1, 1.0, 0, sidelined, None, None, None, None)


def kinds(*queues, **others):
    figures = Figures(now=0, queues=queues, **({"tasks": TASKS} | others))
    return [problem.kind for problem in find(figures, 900.0)]


def test_a_healthy_store_has_no_problems():
    assert kinds(WELL) == []
    assert kinds(tasks={}) == []


OF_QUEUES = {
    "old": {"oldest_age": 901.0},
    "overdue": {"overdue_for": 61.0},
    "dead": {"dead": 1},
    "damaged": {"damaged": 1},
    "stuck": {"stuck": 1, "stuck_for": 1201.0},
    "full": {"max_size": 10},
    "paused": {"paused_for": 3.0},
}


@pytest.mark.parametrize("kind", OF_QUEUES)
def test_a_problem_of_a_queue(kind):
    assert kinds(replace(WELL, **OF_QUEUES[kind])) == [kind]


@pytest.mark.parametrize(
    "change",
    [
        {"oldest_age": None},
        {"oldest_age": 900.0},
        {"overdue_for": 60.0},
        {"max_size": 11},
        {"max_size": 10, "overflow": "ring"},
        {"max_size": 0},
        {"damaged": None, "dead": None, "waiting": None, "max_size": 1},
        {"paused_for": 3.0, "state": "deactivated"},
    ],
)
def test_figures_that_are_well_or_unknown_are_no_problem(change):
    assert kinds(replace(WELL, **change)) == []


def test_a_paused_queue_is_not_late_as_well():
    assert kinds(replace(WELL, oldest_age=9999.0, paused_for=1.0)) == ["paused"]
    assert kinds(replace(WELL, oldest_age=9999.0, concurrency=0)) == ["paused"]


@pytest.mark.parametrize(
    ("change", "grows"),
    [
        ({"shovel_interval": None}, True),
        ({"shovelled_before": None}, True),
        ({"shovelled_before": 1801.0}, True),
        ({"shovelled_before": 600.0}, False),
        ({"retries": True}, False),
        ({"sidelined": 2}, False),
        ({"sidelined": None}, False),
        ({"samples": ()}, False),
        ({"samples": (sample(None),)}, False),
    ],
)
def test_a_sideline_that_grows_with_nobody_shovelling(change, grows):
    queue = replace(WELL, retries=False, samples=(sample(2), sample(3)))

    assert kinds(replace(queue, **change)) == (["growing"] if grows else [])


@pytest.mark.parametrize(
    ("holder", "found"),
    [
        (Holder("till", 3, 100.0, 61.0), ["silent"]),
        (Holder("till", 3, 9999.0, 1.0), []),
        (Holder("till", 3, 3601.0, None), []),
        (Holder("till", 3, None, None), []),
    ],
)
def test_dead_consumers_that_hold_messages(holder, found):
    assert kinds(holders=(holder,)) == found


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        ({}, ["tasks"]),
        ({"sample": 601.0, "sweep": 700.0}, ["tasks"]),
        (TASKS | {"sweep": 2701.0}, ["task"]),
        ({"sample": 5.0}, []),
    ],
)
def test_side_tasks_that_nobody_runs(tasks, found):
    assert kinds(WELL, tasks=tasks) == found


def test_breakers_and_failed_jobs():
    breakers = (OpenBreaker("bank", "open", 5.0),)
    jobs = (FailedJob("abc", "orders", None),)

    assert kinds(WELL, breakers=breakers, failed_jobs=jobs) == ["breaker", "job"]


def test_the_worst_comes_first():
    queues = (replace(WELL, name="a", paused_for=1.0), replace(WELL, name="b", damaged=4))

    assert kinds(*queues) == ["damaged", "paused"]


def test_each_problem_says_what_to_do():
    queue = replace(WELL, oldest_age=7500.0, dead=2, damaged=1, max_size=10)
    for problem in find(Figures(now=0, queues=(queue,)), 900.0):
        assert problem.text.endswith(".")
        assert problem.advice.endswith(".")
