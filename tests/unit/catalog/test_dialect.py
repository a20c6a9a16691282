"""An unknown database fails loudly, and a listener that fails leaves no connection open."""

from types import SimpleNamespace

import pytest
from sqlalchemy import select

from queue_core.catalog import dialect
from queue_core.catalog.tables import queues


class Stranger(SimpleNamespace):
    """A connection, or an engine, of a database that ignis does not know."""

    dialect = SimpleNamespace(name="oracle")
    driver_connection = SimpleNamespace(close=lambda: None)

    def exec_driver_sql(self, statement):
        """Do nothing."""

    def raw_connection(self):
        return self

    def detach(self):
        """Do nothing."""


@pytest.mark.parametrize(
    "call",
    [
        lambda c: dialect.file_of(c),
        lambda c: dialect.shares_database(c),
        lambda c: dialect.writes_in_parallel(c),
        lambda c: dialect.begin(c, write=True),
        lambda c: dialect.begin(c, write=False),
        lambda c: dialect.notify(c, "channel"),
        lambda c: dialect.listen(c, "channel"),
        lambda c: dialect.create_alone(c, queues),
        lambda c: dialect.share_lock(c, "task_log"),
        lambda c: dialect.try_lock(c, "task_log"),
        lambda c: dialect.lock_room(c, 1),
        lambda c: dialect.skip_locked(c, select(queues)),
        lambda c: dialect.locked(c, select(queues)),
        lambda c: dialect.one_of(c, queues.c.id, [1]),
        lambda c: dialect.greatest(c, queues.c.id, 1),
        lambda c: dialect.insert_new(c, queues),
        lambda c: dialect.last_id(c, queues),
        lambda c: dialect.rename_table(c, "a", "b"),
        lambda c: dialect.rename_column(c, "a", "b", "c"),
        lambda c: dialect.rename_index(c, "a", "b", "c (d)"),
    ],
)
def test_a_function_without_a_case_for_the_database_says_so(call):
    with pytest.raises(NotImplementedError, match="oracle"):
        call(Stranger())


def test_a_listener_that_cannot_listen_closes_its_connection():
    closed = []

    def execute(statement):
        raise ConnectionError(statement)

    driver = SimpleNamespace(execute=execute, close=lambda: closed.append(True))
    engine = SimpleNamespace(
        dialect=SimpleNamespace(name="postgresql"),
        raw_connection=lambda: SimpleNamespace(driver_connection=driver, detach=lambda: None),
    )

    with pytest.raises(ConnectionError, match="LISTEN channel"):
        dialect.listen(engine, "channel")

    assert closed == [True]
