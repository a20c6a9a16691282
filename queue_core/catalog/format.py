"""The format version of a catalog, and the ordered steps from one version to the next."""

from collections.abc import Callable
from typing import Protocol

from sqlalchemy import Connection, insert, inspect, select, text, update

from queue_core.catalog import dialect, sql_views
from queue_core.catalog.databases.error_codes import LACKING
from queue_core.catalog.holders import named_locks
from queue_core.catalog.records import due_times
from queue_core.catalog.tables import facts, locks, metadata
from queue_core.errors import DamagedCatalog, FormatTooNew, NoSuchStore
from queue_core.support import faults

#: The format that this version of ignis writes.
FORMAT = 2

#: The first format.
OLDEST = 1


def _rename_tables(connection: Connection) -> None:
    """From 1 to 2: plain names; locks, clocks, seals; contents of batches; due times."""
    database = dialect.of(connection)
    database.rename_table(connection, "lines", "waiters")
    database.rename_column(connection, "waiters", "side", "verb")
    database.rename_index(
        connection, "lines_in_order", "waiters_in_order", "waiters (queue_id, verb, id)"
    )
    database.rename_table(connection, "reports", "task_log")
    database.rename_column(connection, "task_log", "at", "done_at")
    database.rename_index(connection, "reports_of_task", "task_log_of_task", "task_log (task, id)")
    database.rename_table(connection, "compactions", "id_map")
    database.rename_index(
        connection, "compactions_by_ids", "id_map_by_ids", "id_map (queue_id, last_id)"
    )
    connection.exec_driver_sql(
        "CREATE TABLE locks (name VARCHAR(32) NOT NULL, queue_id BIGINT NOT NULL, "
        "PRIMARY KEY (name, queue_id))"
    )
    connection.exec_driver_sql(
        "CREATE TABLE clocks (host VARCHAR(64) NOT NULL, catalog_at BIGINT NOT NULL, "
        "host_at BIGINT NOT NULL, steady_at BIGINT NOT NULL, jumped_at BIGINT, PRIMARY KEY (host))"
    )
    connection.exec_driver_sql(
        "CREATE TABLE breakers (name VARCHAR(200) NOT NULL, value VARCHAR(400) NOT NULL, "
        "state VARCHAR(8) NOT NULL, forced BOOLEAN NOT NULL, since_at BIGINT NOT NULL, "
        "until_at BIGINT, pause BIGINT NOT NULL, opened BIGINT NOT NULL, "
        "consumer VARCHAR(200), PRIMARY KEY (name, value))"
    )
    connection.exec_driver_sql(
        "CREATE TABLE allotments (queue_id BIGINT NOT NULL, of_column VARCHAR(255) NOT NULL, "
        "value VARCHAR(400) NOT NULL, spent_until BIGINT, "
        "PRIMARY KEY (queue_id, of_column, value))"
    )
    connection.exec_driver_sql("INSERT INTO locks (name, queue_id) VALUES ('task_log', 0)")
    connection.exec_driver_sql("ALTER TABLE publications ADD COLUMN content TEXT")
    for table in (
        *("queues", "schemas", "shards", "turns", "counters", "segments", "id_map", "slices"),
        *("consumers", "interests", "tickets", "publications", "failures", "task_log"),
    ):
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN seal BIGINT")
    connection.exec_driver_sql("ALTER TABLE consumers ADD COLUMN ack VARCHAR(16)")
    connection.exec_driver_sql("ALTER TABLE consumers ADD COLUMN sweepable BOOLEAN")
    connection.exec_driver_sql("ALTER TABLE queues ADD COLUMN paused_at BIGINT")
    due_times.introduce(connection)
    connection.exec_driver_sql(
        "CREATE TABLE jobs (id VARCHAR(16) NOT NULL, queue_id BIGINT NOT NULL, target_id BIGINT, "
        "selector TEXT, rate VARCHAR(40), most BIGINT, force BOOLEAN NOT NULL, "
        "who VARCHAR(200) NOT NULL, pointers TEXT NOT NULL, total BIGINT NOT NULL, "
        "begun_at BIGINT NOT NULL, state VARCHAR(16) NOT NULL, moved BIGINT NOT NULL, "
        "runner VARCHAR(200), heartbeat_at BIGINT, ended_at BIGINT, error TEXT, seal BIGINT, "
        "PRIMARY KEY (id))"
    )
    by_key = " WITHOUT ROWID" if database.name == "sqlite" else ""
    connection.exec_driver_sql(
        "CREATE TABLE samples (seconds INTEGER NOT NULL, taken_at BIGINT NOT NULL, "
        "queue_id BIGINT NOT NULL, waiting BIGINT, oldest_age BIGINT, in_flight BIGINT, "
        "sidelined BIGINT, retrying BIGINT, dead BIGINT, elapsed BIGINT, new_loaded BIGINT, "
        "new_fired BIGINT, new_deleted BIGINT, new_sidelined BIGINT, all_loaded BIGINT, "
        "all_fired BIGINT, all_deleted BIGINT, all_sidelined BIGINT, "
        f"PRIMARY KEY (seconds, taken_at, queue_id)){by_key}"
    )
    connection.exec_driver_sql(
        "CREATE INDEX samples_of_queue ON samples (queue_id, seconds, taken_at)"
    )
    connection.exec_driver_sql("ALTER TABLE slices ADD COLUMN rank BIGINT")
    connection.exec_driver_sql("ALTER TABLE slices ADD COLUMN pace BIGINT")
    connection.exec_driver_sql(
        "CREATE INDEX slices_by_rank ON slices "
        "(queue_id, magazine, state, rank, position, shard) WHERE rank IS NOT NULL"
    )
    connection.exec_driver_sql("ALTER TABLE slices ADD COLUMN lost SMALLINT NOT NULL DEFAULT 0")
    connection.exec_driver_sql(
        "ALTER TABLE slices ADD COLUMN lost_among INTEGER NOT NULL DEFAULT 0"
    )
    connection.exec_driver_sql(
        "CREATE INDEX slices_lost ON slices (queue_id, magazine) WHERE lost_among > 0"
    )
    connection.exec_driver_sql(
        "CREATE TABLE lanes (queue_id BIGINT NOT NULL, lane BIGINT NOT NULL, "
        "finish BIGINT NOT NULL, PRIMARY KEY (queue_id, lane))"
    )
    _index_keys(connection, by_key)


def _index_keys(connection: Connection, by_key: str) -> None:
    """Give each key that is known a row, with the time when it was loaded last."""
    # Not at the top: few catalogs are of format 1.
    from queue_core.segments.ipc import unpack
    from queue_core.segments.key_bytes import key_bytes

    found = connection.execute(text("SELECT queue_id, arrow FROM dedup ORDER BY id"))
    known = [(row.queue_id, unpack(row.arrow)) for row in found]
    blob = "BLOB" if by_key else "BYTEA"
    connection.exec_driver_sql("DROP TABLE dedup")
    connection.exec_driver_sql(
        f"CREATE TABLE dedup (queue_id BIGINT NOT NULL, key {blob} NOT NULL, "
        f"loaded_at BIGINT NOT NULL, PRIMARY KEY (queue_id, key)){by_key}"
    )
    connection.exec_driver_sql("CREATE INDEX dedup_by_age ON dedup (queue_id, loaded_at)")
    add = text(
        "INSERT INTO dedup (queue_id, key, loaded_at) VALUES (:queue, :key, :at) "
        "ON CONFLICT (queue_id, key) DO UPDATE SET loaded_at = excluded.loaded_at "
        "WHERE excluded.loaded_at > dedup.loaded_at"
    )
    for queue, table in known:
        keys, times = key_bytes(table.drop_columns("_loaded_at")), table.column("_loaded_at")
        rows = zip(keys.to_pylist(), times.to_pylist(), strict=True)
        connection.execute(add, [{"queue": queue, "key": key, "at": at} for key, at in rows])


#: ``STEPS[n]`` turns a catalog of format n into one of format n + 1. A step never changes. It uses
#: no `Table`, because those have the newest format. It renames or removes all that changes its
#: meaning, so that an older ignis that still has the catalog open gets an error and never misreads
#: a row.
STEPS: dict[int, Callable[[Connection], None]] = {1: _rename_tables}


class NewStore(Protocol):
    """A store that may have to be created."""

    def check(self) -> None:
        """Raise `DamagedCatalog` if it must not be created."""

    def write(self, connection: Connection) -> None:
        """Check again, and write into the new catalog; raises `DamagedCatalog`."""


def is_current(connection: Connection, catalog: str) -> bool:
    """
    Return whether a catalog has all tables of this format.

    Raises `FormatTooNew`, and `DamagedCatalog` when some are missing.
    """
    there = _tables(connection)
    if facts.name not in there or read(connection, catalog) != FORMAT:
        return False
    _check_tables(there, catalog)
    return True


def prepare(
    connection: Connection, catalog: str, *, create: bool, new: NewStore | None = None
) -> str | None:
    """
    Create the tables or bring them up to this format, inside a writing transaction.

    *new* checks a new store, and writes into its catalog.
    Return ``open`` if it created them, ``migrate`` if it changed them, and else None. Raises
    `NoSuchStore`, `DamagedCatalog` or `FormatTooNew`.
    """
    there = _tables(connection)
    if facts.name not in there:
        strange = (
            there & metadata.tables.keys() if dialect.of(connection).shares_database else there
        )
        if strange:
            raise DamagedCatalog(
                f"catalog {catalog} holds the tables {', '.join(sorted(strange))} and is not an "
                "ignis store; give ignis a database of its own, or restore it from a backup"
            )
        if not create:
            raise NoSuchStore(f"there is no ignis store at {catalog}; create a queue first")
        if dialect.of(connection).create_alone(connection, facts):
            dialect.of(connection).create_tables(connection, metadata, but=facts)
            sql_views.create(connection)
            connection.execute(insert(facts).values(name="format", value=str(FORMAT)))
            connection.execute(
                insert(locks).values(name=named_locks.REPORTING, queue_id=named_locks.STORE)
            )
            if new is not None:
                new.write(connection)
            faults.point("open.before_commit")
            return "open"
    # Other processes that migrate wait for this row.
    connection.execute(dialect.of(connection).locked(select(facts))).all()
    found = read(connection, catalog)
    if found == FORMAT:
        # Another process was faster.
        return None
    # They show tables that a step changes, and hold nothing themselves.
    sql_views.drop(connection)
    for version in range(found, FORMAT):
        STEPS[version](connection)
    sql_views.create(connection)
    _check_tables(_tables(connection), catalog)
    connection.execute(update(facts).where(facts.c.name == "format").values(value=str(FORMAT)))
    faults.point("migrate.before_commit")
    return "migrate"


def read(connection: Connection, catalog: str) -> int:
    """Return the format of a catalog; raises `FormatTooNew` or `DamagedCatalog`."""
    value = connection.scalar(select(facts.c.value).where(facts.c.name == "format"))
    if value is None or not value.isdecimal() or int(value) < OLDEST:
        raise DamagedCatalog(f"catalog {catalog} has no format version; restore it from a backup")
    if int(value) > FORMAT:
        raise FormatTooNew(
            f"catalog {catalog} has format {value}, and this ignis reads formats up to {FORMAT}; "
            "upgrade ignis"
        )
    return int(value)


def _tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def _check_tables(there: set[str], catalog: str) -> None:
    missing = metadata.tables.keys() - there
    if missing:
        raise DamagedCatalog(
            f"catalog {catalog} lacks its tables {', '.join(sorted(missing))}; {LACKING}"
        )
