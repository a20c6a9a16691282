"""Messages of dead consumers, and firings and returns that keep books of their own."""

from __future__ import annotations

import pyarrow as pa

from queue_core import Limit, Retry, Settlement, Store, constant
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.values.ids import IdSet
from queue_core.values.model import HandlingConsumer, Magazine, State
from queue_core.verbs.lose import start_again
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import (
    FEW,
    MANY,
    Workload,
    around,
    everything_waits,
    fires_all,
    load,
    prepared,
    the_queue,
)
from tests.crash.workloads.firing import fired_apart, fires
from tests.factories import make_queue

#: The most that a queue lets fly.
IN_FLIGHT = 2_500


def start(store: Store) -> HandlingConsumer:
    return start_again(store.catalog, "till")


def suspects(store: Store) -> int:
    return sum(row["messages"] for row in store.view("slices").to_pylist() if row["lost_among"])


# a killer that is alone


def kills_alone(store: Store, journal: Journal) -> None:
    """A message was lost alone once, and its consumer has died with it again."""
    prepared(store, journal)
    for _ in range(2):
        the_queue(store).fire(1, consumer=start(store))


def sweeps(store: Store, journal: Journal) -> None:
    the_queue(store).sweep(0, dead_after=0)


def starts_again(store: Store, journal: Journal) -> None:
    start(store)


def killer_is_aside(store: Store, journal: Journal) -> None:
    books = audit(store)
    (killer,) = books.ids(Magazine.SIDELINE)
    assert len(books.ids(Magazine.MAIN, State.LOADED)) == FEW + MANY - 1
    (failure,) = the_queue(store).failures().to_pylist()
    assert (failure["message_id"], failure["kind"]) == (killer, "killed")
    assert suspects(store) == 1


# suspects are fired


def leaves_suspects(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    the_queue(store).fire(FEW, consumer=start(store))
    start(store)


def fires_suspects(store: Store, journal: Journal) -> None:
    consumer = start(store)
    firing = the_queue(store).fire("all", consumer=consumer)
    assert 1 <= len(firing) <= FEW // 2
    journal.write("fired", ids=firing.ids.to_pylist())


def suspects_are_the_same(store: Store, journal: Journal) -> None:
    (fired,) = journal.read("fired")
    assert audit(store).ids(Magazine.MAIN, State.FIRED) == set(fired["ids"])
    assert suspects(store) == FEW


# a fair queue with limits


def is_fair_and_limited(store: Store, journal: Journal) -> None:
    limits = [Limit(in_flight=IN_FLIGHT), Limit(column="customer", in_flight=IN_FLIGHT)]
    make_queue(store, shards=3, key="customer", fair_by="customer", limits=limits)
    load(store, journal, FEW)
    load(store, journal, MANY)


def fired_within_limits(store: Store, journal: Journal) -> None:
    fired_apart(store, journal)
    queue = the_queue(store)
    queue.fire("all", consumer=store.consumer("reader"))
    assert len(audit(store).ids(Magazine.MAIN, State.FIRED)) == IN_FLIGHT


def comes_due_by_turns(store: Store, journal: Journal) -> None:
    make_queue(store, shards=3, key="customer", fair_by="customer")
    load(store, journal, FEW)
    queue = the_queue(store)
    ids = IdSet.of(queue.fire("all").ids)
    queue.settle(Settlement.sideline(ids), retry=Retry(backoff=constant(0)))
    load(store, journal, MANY)


def retries(store: Store, journal: Journal) -> None:
    Retries(store.catalog, store.storage).run()


# unhandled messages


def loses_and_fires_all(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    the_queue(store).fire("all", consumer=start(store))
    firing = the_queue(store).fire("all", consumer=start(store))
    journal.write("fired", ids=firing.ids.to_pylist())


def gives_back(store: Store, journal: Journal) -> None:
    ids = IdSet.of(journal.read("fired")[0]["ids"])
    the_queue(store).settle(Settlement(reloaded=ids, unhandled=ids), "till")


def as_if_never_fired(store: Store, journal: Journal) -> None:
    everything_waits(store, journal)
    assert suspects(store) == FEW + MANY
    assert set(store.view("slices").column("deliveries").to_pylist()) == {0}


# put off


def puts_off(store: Store, journal: Journal) -> None:
    ids = journal.read("fired")[0]["ids"]
    rows = {"_message_id": ids, "outcome": ["reload"] * len(ids), "delay": [1000.0] * len(ids)}
    the_queue(store).settle(Settlement.of(pa.table(rows)), "reader")


def waits_for_its_time(store: Store, journal: Journal) -> None:
    books = audit(store)
    assert books.ids(Magazine.SIDELINE, State.LOADED) == set(journal.read("fired")[0]["ids"])
    assert the_queue(store).failures().num_rows == 0
    assert set(store.view("slices").column("deliveries").to_pylist()) == {0}


_SWEEP_KILLER = Workload(prepare=kills_alone, act=sweeps, check=killer_is_aside)
_START_WITH_KILLER = Workload(prepare=kills_alone, act=starts_again, check=killer_is_aside)
_FIRE_SUSPECTS = Workload(prepare=leaves_suspects, act=fires_suspects, check=suspects_are_the_same)
_FIRE_FAIRLY = Workload(prepare=is_fair_and_limited, act=fires, check=fired_within_limits)
_RETRY_FAIRLY = Workload(prepare=comes_due_by_turns, act=retries, check=everything_waits)
_GIVE_BACK = Workload(prepare=loses_and_fires_all, act=gives_back, check=as_if_never_fired)
_PUT_OFF = Workload(prepare=fires_all, act=puts_off, check=waits_for_its_time)

# A passage can be written in several ways, since each fault has one workload.
FAULTS = {
    **around("lose", _SWEEP_KILLER, ":1"),
    **around("lose", _START_WITH_KILLER, ":01"),
    **around("fire", _FIRE_SUSPECTS, ":1"),
    **around("fire", _FIRE_FAIRLY, ":02"),
    **around("retry", _RETRY_FAIRLY, ":1"),
    **around("settle", _GIVE_BACK, ":01"),
    **around("settle", _PUT_OFF, ":001"),
}
