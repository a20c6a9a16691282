"""The journal has every transaction, and the checker refuses those that must not be."""

import pytest
from sqlalchemy import delete, update

from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.tables import slices
from queue_core.values.model import State
from tests.factories import make_filled, orders
from tests.model import journal
from tests.model.conformance import Checker, NotAllowed


@pytest.fixture(autouse=True)
def _marks():
    with journal.marks():
        yield


@pytest.fixture
def queue(store):
    journal.install(store)
    journal.install(store)
    return make_filled(store, 6, shards=2, key="customer")


def break_it(store, statement):
    store.catalog.write(lambda connection: connection.execute(statement).close())


def test_every_verb_is_a_step_of_the_specification(store, queue):
    queue.load(orders(6, 6))
    queue.reload(queue.fire(3))
    queue.sideline(queue.fire(4))
    queue.shovel(force=True)
    queue.fire(2)
    queue.sweep(0, dead_after=0)
    queue.delete(queue.fire(5))
    queue.delete(queue.fire("all"))

    seen = Checker().check(journal.read(store))

    assert seen["load"] == 12
    assert seen["reload"] == 3
    assert seen["sideline"] == 6
    assert seen["shovel"] == 4
    assert seen["delete"] == 10
    assert len(list(journal.read(store))) >= 9


def test_a_transaction_that_is_rolled_back_is_no_event(store, queue):
    before = len(list(journal.read(store)))

    def work(connection):
        connection.execute(delete(slices)).close()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.catalog.write(work)

    assert len(list(journal.read(store))) == before


@pytest.mark.parametrize(
    ("state", "values", "told"),
    [
        (State.LOADED, {"magazine": 1, "state": 1, "consumer_id": 1, "ticket": 1}, "becomes"),
        (State.FIRED, {"ticket": 999}, "becomes"),
        (State.LOADED, {"state": 1, "consumer_id": 1, "ticket": 999}, "no such ticket"),
    ],
    ids=["fired into the sideline", "handed on", "without a ticket"],
)
def test_a_step_that_must_not_be_is_refused(store, queue, state, values, told):
    queue.fire(2)
    break_it(store, update(slices).where(slices.c.state == int(state)).values(values))

    with pytest.raises(NotAllowed, match=told):
        Checker().check(journal.read(store))


def test_a_counter_that_goes_back_is_refused(store, queue):
    queue.fire(2)
    break_it(store, update(consumers).values(last_ticket=0))

    with pytest.raises(NotAllowed, match="last_ticket of consumer"):
        Checker().check(journal.read(store))


def test_a_message_in_two_slices_is_refused(store, queue):
    queue.fire(1)
    row = next(
        change.after
        for transaction in journal.read(store)
        for change in transaction.changes
        if change.table == "slices"
    )
    twice = {"row_start": row["row_start"], "row_stop": row["row_stop"], "bitmap": None}
    break_it(store, update(slices).where(slices.c.id != row["id"]).values(twice))

    with pytest.raises(NotAllowed, match="is in"):
        Checker().check(journal.read(store))
