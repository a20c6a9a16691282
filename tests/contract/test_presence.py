"""`Presence`: a consumer sends a heartbeat, and tells of its interest only what is new."""

import pytest
from sqlalchemy import select

from queue_core.catalog.holder_tables import interests as rows
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
