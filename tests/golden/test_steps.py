"""The steps from format 1 on make of an old catalog what a new one is, on either database."""

import pytest
from sqlalchemy import text

from queue_core import Store
from queue_core.catalog import dialect
from queue_core.catalog.format import FORMAT
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
            "shards": ("log", "logged", "logged_bytes", "version"),
            "shard_locks": (
                *("log_of", "cursor", "cursor_end", "version", "head", "head_released"),
            ),
            "counters": ("version", "released"),
            "queues": ("root_id", "detached_at", "snapshot_of", "ends_at"),
            "segments": ("log_rows",),
        }.items()
        for column in columns
    ),
    "ALTER TABLE segments RENAME COLUMN file TO location",
    "ALTER TABLE slices RENAME COLUMN rank_step TO pace",
    "UPDATE facts SET value = '1' WHERE name = 'format'",
)
#: And on PostgreSQL.
KEYS = [
    f"ALTER TABLE {table} ADD PRIMARY KEY (queue_id, magazine, shard)"
    for table in ("shards", "shard_locks", "counters")
]


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
    run(address, [*BACK, *(KEYS if address.catalog.startswith("postgresql") else ())])
    assert format_of(address) == "1"

    Store(address).close()
    assert names_of(address) == new
    assert format_of(address) == str(FORMAT)
    with Store(address) as store:
        queue = store.queue("orders")
        queue.admin.change_settings(log="7 days")
        reader = store.subscribe("billing", to="orders")
        queue.load(orders(10))
        assert reader.fire("all").messages.num_rows == 10
        assert store.admin.fsck().to_pylist() == []
        audit(store)


@pytest.mark.parametrize(
    "older", ["segments RENAME COLUMN file TO location", "slices RENAME COLUMN rank_step TO pace"]
)
def test_a_process_of_an_old_format_gets_an_error_from_each_load_or_removal(address, older):
    """Each of them names the column that has another name now."""
    with Store(address) as store:
        queue = make_queue(store)
        queue.load(orders(20))
        fired = queue.fire(5)
        rest = queue.fire(5)
        newer = f"UPDATE facts SET value = '{FORMAT + 1}' WHERE name = 'format'"
        run(address, [f"ALTER TABLE {older}", newer])
        calls = {
            "segments": (lambda: queue.load(orders(1)), lambda: queue.delete(fired)),
            "slices": (lambda: queue.reload(rest), lambda: queue.fire(1), lambda: queue.sweep(0)),
        }
        for call in calls[older.split()[0]]:
            with pytest.raises(FormatTooNew, match="upgrade ignis"):
                call()
