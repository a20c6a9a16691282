"""A person requeues messages of the sideline, or moves them to another queue."""

from __future__ import annotations

import contextlib
from unittest import mock

from queue_core import Store
from queue_core.errors import BadOption
from queue_core.values.model import Magazine, State
from queue_core.verbs.operator import redriving
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import FEW, MANY, Workload, around, everything_waits, the_queue
from tests.crash.workloads.sidelining import sidelines
from tests.factories import make_queue, numbers_of
from tests.job_steps import make_late, run_job


def requeues(store: Store, journal: Journal) -> None:
    the_queue(store).choose("all").requeue()


def edits(store: Store, journal: Journal) -> None:
    """Three messages; those that were edited before are in main."""
    for message in journal.read("fired")[0]["ids"][:3]:
        with contextlib.suppress(BadOption):
            the_queue(store).edit(message, {"amount": 0.5})


def the_edited_ones_wait(store: Store, journal: Journal) -> None:
    edited = journal.read("fired")[0]["ids"][:3]
    books = audit(store)
    assert books.ids(Magazine.MAIN, State.LOADED) == set(edited)
    assert len(books.ids(Magazine.SIDELINE, State.LOADED)) == FEW + MANY - 3
    assert the_queue(store).browse().column("amount").to_pylist() == [0.5] * 3


def starts_a_job(store: Store, journal: Journal) -> None:
    sidelines(store, journal)
    the_queue(store).start_shovel()


def starts_a_job_to_another_queue(store: Store, journal: Journal) -> None:
    sidelines(store, journal)
    make_queue(store, "other", shards=2)
    the_queue(store).start_shovel(to="other")


def runs_the_job(store: Store, journal: Journal) -> None:
    """In three steps; the process that ran it before counts as dead."""
    (job,) = store.view("jobs").column("job").to_pylist()
    make_late(store)
    with mock.patch.object(redriving, "STEP_MESSAGES", (FEW + MANY) // 2):
        run_job(store, job)


def everything_is_back(store: Store, journal: Journal) -> None:
    everything_waits(store, journal)
    the_job_counts_each_message_once(store)


def everything_is_there_once(store: Store, journal: Journal) -> None:
    audit(store)
    assert the_queue(store).choose("all").count() == 0
    there = numbers_of(store.queue("other").browse())
    assert sorted(there) == sorted([*range(FEW), *range(MANY)])
    the_job_counts_each_message_once(store)


def the_job_counts_each_message_once(store: Store) -> None:
    (row,) = store.view("jobs").to_pylist()
    assert (row["state"], row["moved"], row["total"]) == ("done", FEW + MANY, FEW + MANY)


_REQUEUE = Workload(prepare=sidelines, act=requeues, check=everything_waits)
_EDIT = Workload(prepare=sidelines, act=edits, check=the_edited_ones_wait)
_JOB = Workload(prepare=starts_a_job, act=runs_the_job, check=everything_is_back)
_AWAY = Workload(
    prepare=starts_a_job_to_another_queue,
    act=runs_the_job,
    check=everything_is_there_once,
    ends=True,
)

FAULTS = {
    **around("intervene", _REQUEUE),
    **around("edit", _EDIT, ":2"),
    **around("redrive", _JOB),
    **around("redrive", _AWAY, ":2"),
}
