"""The step from format 1 to 2 makes of an old catalog what a new one is, on either database."""

import pytest
from sqlalchemy import text

from queue_core import Store
from queue_core.catalog import dialect
from queue_core.errors import FormatTooNew
from tests.books import audit
from tests.factories import make_queue, orders
from tests.golden.next_format import format_of, schema_of

#: What leads back, which no user does.
BACK = (
    *("DROP VIEW queue_figures", "DROP VIEW queue_samples"),
    *("DROP TABLE logs", "DROP TABLE log_slices", "DROP TABLE shared_limits"),
    *(
        f"ALTER TABLE {table} DROP COLUMN {column}"
        for table, columns in {
            "shards": ("log", "logged", "logged_bytes"),
            "shard_locks": ("log_of", "cursor", "cursor_end"),
            "queues": ("root_id", "detached_at", "snapshot_of", "ends_at"),
            "segments": ("log_rows",),
        }.items()
        for column in columns
    ),
    "ALTER TABLE segments RENAME COLUMN file TO location",
    "UPDATE facts SET value = '1' WHERE name = 'format'",
)


def run(address, statements):
    engine = dialect.connect(address.catalog)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def names_of(address):
    """The columns and the indexes; PostgreSQL does not use the number of a column again."""
    found = schema_of(address)
    rows = (row.split(", ") for row in found.get("columns", ()))
    found["columns"] = [(*row[:2], *row[3:]) for row in rows]
    return found


def test_a_migrated_catalog_has_the_tables_of_a_new_one(address):
    with Store(address) as store:
        make_queue(store, shards=2)
    new = names_of(address)
    run(address, BACK)
    assert format_of(address) == "1"

    Store(address).close()
    assert names_of(address) == new
    assert format_of(address) == "2"
    with Store(address) as store:
        queue = store.queue("orders")
        queue.admin.change_settings(log="7 days")
        reader = store.subscribe("billing", to="orders")
        queue.load(orders(10))
        assert reader.fire("all").messages.num_rows == 10
        assert store.admin.fsck().to_pylist() == []
        audit(store)


def test_a_process_of_the_old_format_gets_an_error_from_each_load_and_removal(address):
    """Each of them names the column that has another name now."""
    with Store(address) as store:
        queue = make_queue(store)
        queue.load(orders(10))
        fired = queue.fire("all")
        run(
            address,
            [
                "ALTER TABLE segments RENAME COLUMN file TO location",
                "UPDATE facts SET value = '3' WHERE name = 'format'",
            ],
        )
        for call in (lambda: queue.load(orders(1)), lambda: queue.delete(fired)):
            with pytest.raises(FormatTooNew, match="upgrade ignis"):
                call()
