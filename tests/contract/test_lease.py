"""The leader by a lease: one at a time, by the catalog's clock; given up if it is not renewed."""

import threading
from types import SimpleNamespace

import pytest

from queue_core.catalog.holders import leases
from queue_core.errors import CatalogUnavailable, NotLeading
from queue_core.upkeep.leader import lease
from queue_core.upkeep.leader.lease import ROLE, LeaseLeader
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import until

pytestmark = pytest.mark.each_catalog

#: Longer than any test.
LONG = 3600.0


def guarded(store, leader):
    store.catalog.write(leader.guard)


@pytest.fixture
def candidates(store):
    """Leaders that are stopped at the end."""
    made = []

    def make(holder, **values):
        made.append(LeaseLeader(store.catalog, holder=holder, **values))
        return made[-1]

    yield make
    for leader in made:
        leader.stop()


def test_the_first_to_ask_leads_and_others_do_not(store, candidates):
    one, two = candidates("one"), candidates("two")
    one.start()
    two.start()

    assert (one.leads(), two.leads()) == (True, False)
    guarded(store, one)
    with pytest.raises(NotLeading, match="two is not the sweeper"):
        guarded(store, two)


def test_when_the_leader_stops_another_takes_over_at_once(candidates):
    one, two = candidates("one", ttl=LONG), candidates("two", every=0.01)
    one.start()
    two.start()

    one.stop()

    assert not one.leads()
    until(two.leads)


def test_a_lease_that_is_not_renewed_ends(store, candidates):
    store.catalog.write(lambda c: leases.hold(c, ROLE, "dead", 0.05))
    two = candidates("two", every=0.01)
    two.start()

    until(two.leads)


def test_a_candidate_that_finds_no_thread_stands_again_when_it_is_started(candidates, monkeypatch):
    one = candidates("one", ttl=0.2, every=0.01)

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(lease.Loop, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            one.start()
    until(lambda: not one.leads())
    one.start()
    until(one.leads)


def test_a_leader_that_cannot_reach_the_catalog_gives_up_by_itself(store, candidates, monkeypatch):
    leader = candidates("one", ttl=0.2, every=0.01)
    leader.start()

    def fails(_):
        raise CatalogUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(store.catalog, "write", fails)
        until(lambda: not leader.leads())
    until(leader.leads)


def test_who_lost_the_lease_and_has_it_again_is_in_a_new_term(store, candidates):
    leader = candidates("one", every=LONG)
    leader.start()
    store.catalog.write(lambda c: leases.release(c, ROLE, "one"))
    assert store.catalog.write(lambda c: leases.hold(c, ROLE, "two", 0.0)) == 2
    assert store.catalog.write(lambda c: leases.hold(c, ROLE, "one", LONG)) == 3

    assert leader.leads(), "it has not heard of it"
    with pytest.raises(NotLeading):
        guarded(store, leader)


def test_a_leader_whose_lease_had_ended_leads_again_once_others_have_sent_heartbeats(
    store, candidates
):
    """The catalog or the machine was away, and those who live looked dead for a while."""
    leader = candidates("one", every=0.5)
    leader.start()
    store.catalog.write(lambda c: leases.release(c, ROLE, "one"))

    until(lambda: not leader.leads())
    with pytest.raises(NotLeading):
        guarded(store, leader)
    until(leader.leads)
    guarded(store, leader)


@ONLY_POSTGRESQL  # SQLite lets one write at a time
def test_what_the_leader_does_keeps_the_lease_from_being_taken(store, candidates):
    leader = candidates("one")
    leader.start()
    taken = threading.Thread(
        target=lambda: store.catalog.write(lambda c: leases.hold(c, ROLE, "two", LONG))
    )

    def work(connection):
        leader.guard(connection)
        taken.start()
        taken.join(0.2)
        return taken.is_alive()

    assert store.catalog.write(work), "it waits for the leader's transaction"
    taken.join(60)


@pytest.mark.parametrize("hours", [-1, 1])
def test_clocks_that_differ_by_an_hour_make_no_second_leader(candidates, monkeypatch, hours):
    """Of this process nothing but a stopwatch is asked, and that one may stand anywhere."""
    one = candidates("one", ttl=60.0, every=0.01)
    one.start()
    real = lease.time.monotonic
    # Whoever asked for the time of day would find none.
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: real() + hours * 3600))
    two = candidates("two", ttl=60.0, every=0.01)
    two.start()

    assert not two.leads()
    one.stop()
    until(two.leads)
