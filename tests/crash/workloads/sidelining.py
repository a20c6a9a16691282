"""Messages come back from the sideline, or are swept there."""

from __future__ import annotations

from queue_core import IdSet, Retry, Settlement, Store, constant
from queue_core.upkeep.tasks.shovel import Retries
from tests.children import Journal
from tests.crash.workloads.common import (
    MANY,
    Workload,
    around,
    everything_is_aside,
    everything_waits,
    fires_all,
    the_queue,
)


def sidelines(store: Store, journal: Journal) -> None:
    fires_all(store, journal)
    the_queue(store).sideline(journal.read("fired")[0]["ids"], reason="not today")


def shovels(store: Store, journal: Journal) -> None:
    the_queue(store).shovel(MANY // 2)
    the_queue(store).shovel()


def comes_due(store: Store, journal: Journal) -> None:
    fires_all(store, journal)
    ids = journal.read("fired")[0]["ids"]
    the_queue(store).settle(Settlement.sideline(IdSet.of(ids)), retry=Retry(backoff=constant(0)))


def retries(store: Store, journal: Journal) -> None:
    Retries(store.catalog, store.storage).run()


def sweeps(store: Store, journal: Journal) -> None:
    the_queue(store).sweep(0, dead_after=0)


_SHOVEL = Workload(prepare=sidelines, act=shovels, check=everything_waits)
_RETRY = Workload(prepare=comes_due, act=retries, check=everything_waits)
_SWEEP = Workload(prepare=fires_all, act=sweeps, check=everything_is_aside)

FAULTS = {
    **around("shovel", _SHOVEL, "", ":2"),
    **around("retry", _RETRY),
    **around("sweep", _SWEEP),
}
