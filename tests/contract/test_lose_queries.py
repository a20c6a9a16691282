"""Lose: the repeated batch of a query that settles is halved, and only trials that began count."""

from unittest import mock

import pytest

from queue_core.catalog.holders import consumers
from queue_core.errors import DamagedSegment, StorageUnavailable
from queue_core.segments.reader import read, read_table
from queue_core.segments.storage import Storage
from queue_core.upkeep.tasks import vacuum
from queue_core.verbs.recover import give_back
from tests.contract.lost import fire, start
from tests.factories import make_filled, numbers_of, planned, seen


def next_life(store, **options):
    return store.catalog.write(
        lambda connection: consumers.enlist(connection, "query", beats=True, **options)
    )


def shown(store, queue, ticket):
    return numbers_of(read_table(seen(store, queue, ticket)))


def one_trial(store):
    """A ticket with two suspects."""
    queue = make_filled(store, 4)
    ticket = planned(store, queue, next_life(store, ack="settle"), 4)
    seen(store, queue, ticket)
    next_life(store, ack="settle")
    return queue, ticket


def test_a_batch_to_settle_is_halved_at_each_life_until_its_killer_is_alone(store):
    queue = make_filled(store, 8)
    ticket = planned(store, queue, next_life(store, ack="settle"), 8)
    sizes = [shown(store, queue, ticket)]
    for _ in range(5):
        next_life(store, ack="settle")
        sizes.append(shown(store, queue, ticket))

    assert sizes == [list(range(8)), [0, 1, 2, 3], [0, 1], [0], [0], []]
    assert numbers_of(queue.browse()) == [1, 2, 3, 4, 5, 6, 7]
    assert queue.failures().column("kind").to_pylist() == ["killed"]
    # What has left the batch comes in later ones, in the same way.
    assert numbers_of(queue.fire(9).messages) == [4, 5, 6, 7]
    assert store.admin.fsck().num_rows == 0


def test_lives_that_never_read_their_suspects_accuse_none(store, inlined):
    queue = make_filled(store, 8)
    ticket = planned(store, queue, next_life(store, ack="settle"), 8)
    seen(store, queue, ticket)
    sizes = []
    for _ in range(6):
        next_life(store, ack="settle")
        sizes.append(len(seen(store, queue, ticket)))
    # The messages were no suspects in the first life.
    assert sizes == [4] * 6

    # A life that reads them counts, and only once.
    shown(store, queue, ticket)
    for _ in range(3):
        next_life(store, ack="settle")
        assert len(seen(store, queue, ticket)) == 2
    assert len(queue.failures()) == 0
    assert store.admin.fsck().num_rows == 0


def test_a_trial_begins_before_its_messages_are_decoded(store, inlined):
    queue, ticket = one_trial(store)
    plan = seen(store, queue, ticket)
    dying = mock.patch("queue_core.segments.reader.decode", side_effect=MemoryError)
    with dying, pytest.raises(MemoryError):
        list(read(plan))
    assert store.storage.has_trial(plan.trial)


@pytest.mark.spoiled
def test_suspects_that_cannot_be_read_are_not_on_trial(store, in_files):
    queue, ticket = one_trial(store)
    plan = seen(store, queue, ticket)
    (location,) = store.storage.list()
    store.storage.remove(location)

    with pytest.raises(DamagedSegment):
        read_table(plan)
    assert not store.storage.has_trial(plan.trial)
    assert store.storage.damage_reports().keys() == {location}


@pytest.mark.parametrize("ack", ["settle", "onCommit"])
def test_only_suspects_that_are_settled_are_on_trial(store, ack):
    queue = make_filled(store, 4)
    fire(queue, start(store, "till"), 2)
    start(store, "till")

    query = next_life(store, ack=ack, sweepable=ack == "settle")
    *suspects, others = (seen(store, queue, planned(store, queue, query, 4)) for _ in range(3))

    assert [numbers_of(read_table(plan)) for plan in (*suspects, others)] == [[0], [1], [2, 3]]
    assert all((plan.trial is not None) == (ack == "settle") for plan in suspects)
    assert others.trial is None


def test_a_storage_that_refuses_notes_keeps_no_messages_back(store, monkeypatch, caplog):
    queue, ticket = one_trial(store)

    def refuse(*_):
        raise StorageUnavailable("storage /shop: trials: Permission denied")

    monkeypatch.setattr(Storage, "note_trial", refuse)
    assert shown(store, queue, ticket) == [0, 1]
    assert "cannot go on, because storage /shop: trials: Permission denied" in caplog.text


def test_the_vacuum_removes_notes_of_trials_after_a_week(store, monkeypatch):
    queue, ticket = one_trial(store)
    plan = seen(store, queue, ticket)
    read_table(plan)
    store.admin.vacuum(grace=0)
    assert store.storage.has_trial(plan.trial)

    monkeypatch.setattr(vacuum, "KEPT_SECONDS", -1.0)
    store.admin.vacuum(dry_run=True)
    assert store.storage.has_trial(plan.trial)
    store.admin.vacuum()
    assert not store.storage.has_trial(plan.trial)


def test_a_batch_that_is_planned_twice_in_a_life_stays_whole(store):
    queue, ticket = one_trial(store)

    assert shown(store, queue, ticket) == shown(store, queue, ticket) == [0, 1]


def test_a_batch_that_is_deleted_on_its_commit_stays_whole(store):
    queue = make_filled(store, 4)
    ticket = planned(store, queue, next_life(store, ack="onCommit", sweepable=False), 4)
    for _ in range(3):
        assert shown(store, queue, ticket) == [0, 1, 2, 3]
        next_life(store, ack="onCommit", sweepable=False)


def test_a_query_that_nobody_starts_again_gives_suspects_back_without_a_delivery(store):
    queue, ticket = one_trial(store)
    shown(store, queue, ticket)

    assert give_back(store.catalog, "query") == 2
    assert set(store.view("slices").column("deliveries").to_pylist()) == {0}
