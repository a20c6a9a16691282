"""The steps from one format of the catalog to the next.

A step never changes. It uses no `Table`, because those have the newest format. It renames or
removes all that changes its meaning, so that an older ignis that still has the catalog open gets an
error and never misreads a row.
"""

from collections.abc import Callable

from sqlalchemy import Connection

from queue_core.catalog import dialect

_LOGS = (
    "ALTER TABLE segments RENAME COLUMN location TO file",
    "ALTER TABLE segments ADD COLUMN log_rows INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE shards ADD COLUMN log SMALLINT DEFAULT 0 NOT NULL",
    "ALTER TABLE shards ADD COLUMN logged BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE shards ADD COLUMN logged_bytes BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE queues ADD COLUMN root_id BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE queues ADD COLUMN detached_at BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE queues ADD COLUMN snapshot_of BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE queues ADD COLUMN ends_at BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE shard_locks ADD COLUMN log_of BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE shard_locks ADD COLUMN cursor BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE shard_locks ADD COLUMN cursor_end BIGINT DEFAULT 0 NOT NULL",
    "CREATE TABLE logs (queue_id BIGINT NOT NULL, shard INTEGER NOT NULL, "
    "start BIGINT NOT NULL, seal BIGINT, PRIMARY KEY (queue_id, shard))",
    "CREATE TABLE log_slices (queue_id BIGINT NOT NULL, shard INTEGER NOT NULL, "
    "first_offset BIGINT NOT NULL, segment_id BIGINT NOT NULL, row_start INTEGER NOT NULL, "
    "row_stop INTEGER NOT NULL, bitmap {bytes}, count INTEGER NOT NULL, bytes BIGINT NOT NULL, "
    "bytes_before BIGINT NOT NULL, logged_at BIGINT NOT NULL, loaded_at BIGINT NOT NULL, "
    "stats TEXT, seal BIGINT, compacted SMALLINT DEFAULT 0 NOT NULL, "
    "PRIMARY KEY (queue_id, shard, first_offset)){by_key}",
    "CREATE TABLE shared_limits (name VARCHAR(100) NOT NULL, queue_id BIGINT NOT NULL, "
    "PRIMARY KEY (name, queue_id))",
)
#: What gives `id_map` another key: SQLite needs a new table.
_KEYS = {
    True: (
        "ALTER TABLE id_map DROP CONSTRAINT id_map_pkey, ADD PRIMARY KEY (segment_id, queue_id)",
    ),
    False: (
        "DROP INDEX id_map_by_ids",
        "ALTER TABLE id_map RENAME TO id_map_of_segments",
        "CREATE TABLE id_map (segment_id BIGINT NOT NULL, queue_id BIGINT NOT NULL, "
        "first_id BIGINT NOT NULL, last_id BIGINT NOT NULL, arrow BLOB NOT NULL, seal BIGINT, "
        "PRIMARY KEY (segment_id, queue_id))",
        "INSERT INTO id_map SELECT * FROM id_map_of_segments",
        "DROP TABLE id_map_of_segments",
        "CREATE INDEX id_map_by_ids ON id_map (queue_id, last_id)",
    ),
}
_TABLES = ("shards", "shard_locks", "counters")
_VERSIONS = (
    "ALTER TABLE slices RENAME COLUMN pace TO rank_step",
    *(f"ALTER TABLE {name} ADD COLUMN version BIGINT DEFAULT 0 NOT NULL" for name in _TABLES),
    "ALTER TABLE shard_locks ADD COLUMN head BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE shard_locks ADD COLUMN head_released BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE counters ADD COLUMN released BIGINT DEFAULT 0 NOT NULL",
)


def _add_logs(connection: Connection) -> None:
    """
    Let queues have logs, subscriptions, and shared limits: format 2.

    A process of an older version that still has the store open must not load, since it would leave
    messages out of a log, and must not remove a segment that a log names. Both statements name the
    file of a segment, whose column has another name from now on.
    """
    parallel = dialect.of(connection).writes_in_parallel
    kinds = {
        "bytes": "BYTEA" if parallel else "BLOB",
        "by_key": "" if parallel else " WITHOUT ROWID",
    }
    for statement in (*_LOGS, *_KEYS[parallel]):
        connection.exec_driver_sql(statement.format(**kinds))


def _add_versions(connection: Connection) -> None:
    """
    Let rows that change often be found by their versions: format 3.

    A process of an older version that still has the store open must not bring messages back to
    their old places, since it would not count them as released. All its statements that read slices
    name a column that has another name from now on.
    """
    for statement in _VERSIONS:
        connection.exec_driver_sql(statement)
    dialect.of(connection).find_by_version(connection, _TABLES)


#: ``STEPS[n]`` turns a catalog of format n into one of format n + 1.
STEPS: dict[int, Callable[[Connection], None]] = {1: _add_logs, 2: _add_versions}
