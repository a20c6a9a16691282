"""The step from format 2 to format 3: rows that change often are found by their versions.

A process of an older version that still has the store open must not bring messages back to their
old places, since it would not count them as released. All its statements that read slices name a
column that has another name from now on.
"""

from sqlalchemy import Connection

from queue_core.catalog import dialect

_TABLES = ("shards", "shard_locks", "counters")
_STATEMENTS = (
    "ALTER TABLE slices RENAME COLUMN pace TO rank_step",
    *(f"ALTER TABLE {name} ADD COLUMN version BIGINT DEFAULT 0 NOT NULL" for name in _TABLES),
    "ALTER TABLE shard_locks ADD COLUMN head BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE shard_locks ADD COLUMN head_released BIGINT DEFAULT 0 NOT NULL",
    "ALTER TABLE counters ADD COLUMN released BIGINT DEFAULT 0 NOT NULL",
)


def take(connection: Connection) -> None:
    """Take the step."""
    for statement in _STATEMENTS:
        connection.exec_driver_sql(statement)
    dialect.of(connection).find_by_version(connection, _TABLES)
