"""Setting damage apart, while somebody settles."""

from __future__ import annotations

import pytest

from queue_core.values.model import State
from queue_core.verbs.quarantine import quarantine
from tests.books import audit
from tests.factories import make_queue, orders
from tests.processes.interleavings.steps import MANY, fired_ids, settles


def spoil(store):
    """Fire all messages; then, their segment is found to be damaged."""
    ids = fired_ids(store)
    (location,) = store.storage.list()
    store.storage.report_damage(location, "by the test")
    return ids


def sets_apart(store):
    return quarantine(store.catalog, store.storage)


def test_what_is_set_apart_is_settled_by_its_ticket(store, race):
    make_queue(store).load(orders(MANY))
    ids = spoil(store)

    assert race(sets_apart, "quarantine.before_commit", settles("delete", ids)) == (MANY, MANY)
    assert audit(store).deleted == MANY


@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_what_is_settled_is_not_set_apart_in_its_old_place(store, one, two, outcome):
    make_queue(store).load(orders(MANY))
    ids = spoil(store)

    one.start(settles(outcome, ids[: MANY // 4]), "settle.before_commit")
    two.start(sets_apart)
    assert two.waits()

    assert one.finish() == MANY // 4
    apart = two.finish()
    books = audit(store)
    assert books.ids(state=State.DAMAGED) >= set(ids[MANY // 4 :])
    assert apart == len(books.ids(state=State.DAMAGED))
    assert books.deleted == (MANY // 4 if outcome == "delete" else 0)
