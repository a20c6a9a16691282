"""`Presence`: a consumer sends a heartbeat, and tells of its interest only what is new."""

import pytest
from sqlalchemy import select, update

from queue_core import ConsumerPool, ConsumerTarget
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.holder_tables import interests as rows
from queue_core.catalog.holders import interests
from queue_core.consumers.presence import Presence
from queue_core.errors import CatalogUnavailable
from tests.factories import make_queue
from tests.statements import counted

pytestmark = pytest.mark.each_catalog


class Wanting:
    """A consumer that says whether it wants messages, and does so only when it is asked to."""

    def __init__(self, store):
        self.wants = True
        self.store = store
        queue = make_queue(store)
        self.presence = Presence(
            store.catalog,
            store.consumer("reader", beats=True),
            [queue.info.id],
            lambda _: self.wants,
            priority=5,
            claim="shared",
        )
        self.presence.stop()

    @property
    def told(self):
        with self.store.catalog.read() as connection:
            return bool(connection.scalar(select(rows.c.interested)))


@pytest.fixture
def wanting(store):
    return Wanting(store)


def test_a_beat_writes_the_interest_only_when_it_changes(store, wanting):
    with counted(store) as statements:
        for _ in range(3):
            wanting.presence.announce()
    assert sum("UPDATE consumers" in each for each in statements) == 3
    assert not any("UPDATE interests" in each for each in statements)

    for wants in (False, True, False):
        wanting.wants = wants
        wanting.presence.announce()
        assert wanting.told is wants


def test_a_change_that_was_not_written_is_told_by_the_next_beat(store, wanting, monkeypatch):
    write = store.catalog.write

    def refuse(work):
        def failing(connection):
            work(connection)
            raise CatalogUnavailable("not now")

        return write(failing)

    wanting.wants = False
    with monkeypatch.context() as patch:
        patch.setattr(store.catalog, "write", refuse)
        with pytest.raises(CatalogUnavailable):
            wanting.presence.announce()
    assert wanting.told

    wanting.presence.announce()
    assert not wanting.told


def test_who_was_forgotten_in_a_long_silence_registers_again(store, wanting):
    """Without a rank, it would precede all, and hold nobody back."""
    store.catalog.write(lambda c: c.execute(update(consumers).values(heartbeat_at=0)))
    late, ids = store.consumer("late", beats=True), [store.queue("orders").info.id]
    store.catalog.write(lambda c: interests.register(c, late, ids))

    def ranked():
        query = select(rows.c.priority, rows.c.claim, rows.c.interested)
        with store.catalog.read() as connection:
            return connection.execute(query.where(rows.c.priority.is_not(None))).all()

    assert ranked() == []
    for wants in (False, True):
        wanting.wants = wants
        wanting.presence.announce()
        assert ranked() == [(5, "shared", wants)]


@pytest.mark.parametrize("how", [{"browse": True}, {"magazine": "sideline"}])
@pytest.mark.parametrize("kind", [ConsumerPool, ConsumerTarget])
def test_who_keeps_nobody_waiting_does_not_before_its_first_heartbeat_either(store, kind, how):
    make_queue(store)
    with kind(store, "orders", lambda *_: True, **how), store.catalog.read() as connection:
        assert connection.scalars(select(rows.c.interested)).all() == [False]
