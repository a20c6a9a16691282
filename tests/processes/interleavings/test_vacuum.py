"""Publishing, while files are removed."""

from __future__ import annotations

import pytest

from queue_core.errors import PublicationRefused
from tests.books import audit, leftover_files
from tests.factories import make_queue, publish
from tests.processes.interleavings.steps import MANY, stage


def vacuums(store):
    return store.admin.vacuum(grace=0)


def loads_staged(staged):
    def verb(store):
        return len(publish(store.catalog, store.storage, store.queue("orders").info, staged))

    return verb


def test_a_file_that_is_being_published_is_not_removed(store, race):
    queue = make_queue(store)
    assert race(loads_staged(stage(store)), "load.before_commit", vacuums) == (1, [])
    assert queue.browse().num_rows == MANY
    audit(store)


def test_a_file_whose_publication_fails_is_removed(store, one, two):
    make_queue(store)
    one.start(loads_staged(stage(store)), "load.before_commit")
    two.start(vacuums)
    assert two.waits()
    one.roll_back()

    assert len(two.finish()) == 1
    assert leftover_files(store) == set()


@pytest.mark.parametrize("point", ["vacuum.before_commit", "vacuum.condemned", "vacuum.removed"])
def test_a_file_that_is_being_removed_is_not_published(store, one, two, point):
    queue = make_queue(store)
    staged = stage(store)
    one.start(vacuums, point)
    two.start(loads_staged(staged))
    assert two.waits() if point == "vacuum.before_commit" else two.passes()

    assert len(one.finish()) == 1
    with pytest.raises(PublicationRefused, match=staged[0].location):
        two.finish()
    assert queue.browse().num_rows == 0
    assert leftover_files(store) == set()
    audit(store)


def test_a_file_that_was_removed_long_ago_is_not_published(store):
    make_queue(store)
    staged = stage(store)
    assert len(vacuums(store)) == 1

    with pytest.raises(PublicationRefused, match=staged[0].location):
        loads_staged(staged)(store)
    audit(store)


def test_a_publication_and_a_vacuum_of_the_same_files_do_not_deadlock(store, one, two):
    make_queue(store)
    staged = sorted(
        (segment for part in range(4) for segment in stage(store, part * MANY)),
        key=lambda segment: segment.location,
        reverse=True,
    )
    one.start(loads_staged(staged), "INSERT INTO files", passage=2)
    two.start(vacuums)
    assert two.waits()

    assert one.finish() == 4
    assert two.finish() == []
    audit(store)


def test_two_vacuums_remove_each_file_once(store, one, two):
    make_queue(store)
    for part in range(3):
        stage(store, part)
    one.start(vacuums, "vacuum.condemned")
    two.start(vacuums)
    assert two.passes()

    assert len(two.finish()) == 3
    one.finish()
    assert leftover_files(store) == set()
    audit(store)
