"""Reads whose statements are apart: a server is asked once for each, and no later write suffers."""

from contextlib import suppress

import pytest
from sqlalchemy import func, insert, select, text

from queue_core.catalog.tables import facts, slices
from queue_core.errors import IgnisError
from tests.factories import make_queue, orders
from tests.storages import ONLY_POSTGRESQL

pytestmark = pytest.mark.each_catalog


def count_of(connection):
    return connection.scalar(select(func.count()).select_from(slices))


def read(catalog):
    with catalog.read(apart=True) as connection:
        count_of(connection)


def read_in_vain(catalog):
    with pytest.raises(IgnisError), catalog.read(apart=True) as connection:
        connection.execute(text("SELECT nothing FROM nowhere"))


def leave(catalog):
    with suppress(LookupError), catalog.read(apart=True) as connection:
        count_of(connection)
        raise LookupError


@pytest.mark.parametrize("before", [read, read_in_vain, leave])
def test_a_later_write_is_whole_or_nothing(store, before):
    before(store.catalog)

    def work(connection):
        connection.execute(insert(facts).values(name="half", value="done"))
        raise LookupError

    with pytest.raises(LookupError):
        store.catalog.write(work)

    with store.catalog.read() as connection:
        assert connection.scalar(select(facts.c.value).where(facts.c.name == "half")) is None


@pytest.mark.parametrize("before", [read, read_in_vain, leave])
def test_a_later_read_sees_one_state(store, before):
    queue = make_queue(store)
    before(store.catalog)

    with store.catalog.read() as connection:
        seen = count_of(connection)
        queue.load(orders(1))
        assert count_of(connection) == seen == 0


@ONLY_POSTGRESQL
def test_a_server_sees_no_transaction(store):
    queue = make_queue(store)

    with store.catalog.read(apart=True) as connection:
        assert count_of(connection) == 0
        queue.load(orders(1))
        assert count_of(connection) == 1
        assert connection.connection.driver_connection.info.transaction_status.name == "IDLE"
