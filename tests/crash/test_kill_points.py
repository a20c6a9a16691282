"""A process is killed at every named point of the core; the store stays correct and usable."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from queue_core import Store
from queue_core.support import faults
from queue_core.values.address import Address
from queue_core.values.model import Magazine, State
from tests.books import Books, audit, leftover_files
from tests.children import Child, Journal
from tests.crash.workloads import WORKLOADS
from tests.crash.workloads.common import Workload, loaded_ids
from tests.model import journal as transactions
from tests.model.conformance import Checker
from tests.storages import IN_A_BUCKET

pytestmark = pytest.mark.crash

#: What runs beside the life of messages, and may be killed at any time.
TASKS = ("shovel.", "sweep.", "settle.", "compact.", "vacuum.", "expire.", "abandon.")
#: Those of Spark, and those of upgrades, have tests of their own.
OTHERS = ("source.", "task.", "sink.", "migrate.")
#: Where something may be in a bucket of which the catalog does not know, or the reverse.
IN_BUCKETS = ("load.writing", "load.before_commit", "compact.written", "vacuum.removing")
CORE_POINTS = {name for name in faults.POINTS if not name.startswith(OTHERS)}
#: The first workload of each point.
FIRST = {fault.partition(":")[0]: fault for fault in reversed(WORKLOADS)}.values()
#: What a person does in one transaction, without files: the gate has its death after the commit.
BY_HAND = (
    *("attach", "clone", "create", "deactivate", "detach", "drop", "edit", "intervene"),
    *("quarantine", "recover", "redrive", "repair", "replay", "reset", "seek", "snapshot"),
    "subscribe",
)


def marks_of(fault: str) -> tuple[pytest.MarkDecorator, ...]:
    """The gate runs the first workload of a point, on SQLite."""
    rolled_back = fault.startswith(tuple(f"{verb}.before_commit" for verb in BY_HAND))
    return (pytest.mark.nightly,) if rolled_back or fault not in FIRST else ()


CASES = [pytest.param(*case, id=case[0], marks=marks_of(case[0])) for case in WORKLOADS.items()]


def test_every_point_of_the_core_has_a_workload():
    assert {fault.partition(":")[0] for fault in WORKLOADS} == CORE_POINTS


@pytest.mark.parametrize(("fault", "workload"), CASES)
def test_a_kill_leaves_the_store_whole(fault, workload, address, tmp_path):
    kill_and_go_on(fault, workload, address, tmp_path)


@IN_A_BUCKET
@pytest.mark.parametrize("fault", IN_BUCKETS)
def test_a_kill_leaves_nothing_behind_in_a_bucket(fault, address, tmp_path):
    kill_and_go_on(fault, WORKLOADS[fault], address, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("again", range(2, 21))
@pytest.mark.parametrize("fault", [fault for fault in WORKLOADS if fault.startswith(TASKS)])
def test_so_do_twenty_kills_at_each_point_of_a_task(fault, again, address, tmp_path):
    kill_and_go_on(fault, WORKLOADS[fault], address, tmp_path)


def kill_and_go_on(fault: str, workload: Workload, address: Address, tmp_path: Path) -> None:
    """The workload dies, is done again, and then the rest is."""
    with transactions.marks():
        _kill_and_go_on(fault, workload, address, Journal(tmp_path / "journal"))


def _kill_and_go_on(fault: str, workload: Workload, address: Address, journal: Journal) -> None:
    recorded = not fault.startswith("open.")
    if recorded:
        with Store(address) as store:
            transactions.install(store)
        with Store(address) as store:
            workload.prepare(store, journal)

    die_at(fault, workload, address, journal)

    with Store(address) as store:
        books = audit(store, spoiled=workload.spoiled)
        if not workload.ends and not workload.withdraws:
            check_nothing_lost(books, journal)
        workload.act(store, journal)
        workload.check(store, journal)
        if not workload.ends:
            finish(store, journal)
        if recorded:
            # Each transaction is one that the specification has.
            assert Checker().check(transactions.read(store))


def die_at(fault: str, workload: Workload, address: Address, journal: Journal) -> None:
    """Run the workload in a child, and see it die where it was told to."""
    child = Child(
        work, address, workload.act, journal, log=journal.path.parent / "child", fault=fault
    )
    assert child.wait() == -signal.SIGKILL, child.output()
    assert child.output() == f"fault point {fault.partition(':')[0]}: killed\n"
    with Store(address) as store:
        child.wait_for_rollback(store)


def work(address: Address, act, journal: Journal) -> None:
    with Store(address) as store:
        act(store, journal)


def check_nothing_lost(books: Books, journal: Journal) -> None:
    """Loaded messages are there, except those that were being deleted."""
    loaded = loaded_ids(journal)
    deleting = {i for entry in journal.read("deleting") for i in entry["ids"]}
    assert loaded - books.ids() <= deleting
    # The load that was interrupted, of which nobody knows the ids, is there or is not.
    assert len(loaded | books.ids()) == len(books.ids()) + books.deleted


def finish(store: Store, journal: Journal) -> None:
    """Everything can be rescued, fired and deleted, and leaves no file behind."""
    there = audit(store).ids()
    queue = store.queue("orders")
    store.admin.recover(dead_after=0)
    queue.sweep(0, dead_after=0)
    # Messages that were fired too often are dead.
    queue.shovel(force=True)
    assert audit(store).ids(Magazine.MAIN, State.LOADED) == there
    # Suspects are fired apart.
    while firing := queue.fire("all"):
        assert set(firing.ids.to_pylist()) <= there
        assert queue.delete(firing) == len(firing)
    store.admin.vacuum(grace=0)
    assert audit(store).ids() == set()
    assert leftover_files(store) == set()
