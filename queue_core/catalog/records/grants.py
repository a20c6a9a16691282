"""The rights that a database role needs on the tables of a catalog, by its kind.

A reader only reads: messages, logs and views. A producer loads. It cannot read messages, and of the
state of queues it reads only counters, and how much which consumer holds. A consumer fires and
settles, and runs the side tasks of its queues. An operator does everything that does not need to
own the tables. To lock a row, a role needs the right to update one of its columns; it gets this
right on a column that changes nothing else.
"""

from __future__ import annotations

from sqlalchemy import Table

from queue_core.catalog import holder_tables, record_tables
from queue_core.catalog import tables as t
from queue_core.errors import BadOption
from queue_core.values.names import nearest

_READ, _ADD, _CHANGE, _REMOVE = "SELECT", "INSERT", "UPDATE", "DELETE"
_ALL = (_READ, _ADD, _CHANGE, _REMOVE)

#: A right on all columns of a table, or on some: ``UPDATE (load_pointer, loaded)``.
Rights = tuple[str, ...]

#: To lock the row of a queue, so that no process deactivates it meanwhile.
_LOCK_QUEUE = "UPDATE (created_at)"

_READER: dict[Table, Rights] = dict.fromkeys(t.metadata.sorted_tables, (_READ,))

_PRODUCER: dict[Table, Rights] = {
    t.facts: (_READ,),
    t.queues: (_READ, _LOCK_QUEUE),
    t.schemas: (_READ,),
    t.shards: (_READ, "UPDATE (load_pointer, loaded, logged, logged_bytes, version, seal)"),
    t.shard_locks: (_READ,),
    t.counters: (_READ,),
    t.segments: (_ADD, "SELECT (id, loaded_at, log_rows)", "UPDATE (log_rows)"),
    t.log_slices: (_ADD,),
    t.files: (_ADD, "SELECT (location)"),
    # The sizes of messages, for queues that are bounded by their bytes, and whether they are kept.
    t.slices: (_ADD, "SELECT (id, queue_id, magazine, shard, state, count, bytes, consumer_id)"),
    # The tickets of a query that reads this store, too.
    holder_tables.consumers: ("SELECT (id, name, last_ticket)",),
    record_tables.publications: (_READ, _ADD, _CHANGE),
    holder_tables.waiters: _ALL,
    t.locks: (_READ, _ADD, "UPDATE (queue_id)"),
    record_tables.task_log: (_ADD, "SELECT (id)"),
}

_CONSUMER: dict[Table, Rights] = {
    t.facts: (_READ,),
    # To detach subscriptions that are too late, for whose sake a log is not trimmed.
    t.queues: (_READ, "UPDATE (created_at, detached_at, seal)"),
    t.schemas: (_READ,),
    t.shards: (_READ, _CHANGE),
    t.shard_locks: (_READ, _CHANGE),
    t.counters: (_READ, _CHANGE),
    t.segments: (_READ, _REMOVE, "UPDATE (log_rows)"),
    # To read logs for subscriptions, and to trim them.
    t.logs: (_READ, _CHANGE),
    t.log_slices: (_READ, _REMOVE),
    t.id_map: (_READ, _ADD, _REMOVE),
    t.files: (_READ, "UPDATE (state, since)"),
    t.slices: _ALL,
    holder_tables.consumers: _ALL,
    holder_tables.interests: _ALL,
    holder_tables.tickets: _ALL,
    record_tables.publications: (_READ, _ADD, _CHANGE),
    record_tables.failures: (_READ, _ADD),
    record_tables.tallies: (_READ, _ADD, _CHANGE),
    record_tables.traces: _ALL,
    record_tables.task_log: (_READ, _ADD),
    record_tables.schedule: (_READ, _ADD, _CHANGE),
    record_tables.task_runs: (_READ, _ADD, _CHANGE),
    record_tables.jobs: (_READ, _ADD, _CHANGE),
    # To remove old ones, too.
    record_tables.acts: _ALL,
    holder_tables.leases: _ALL,
    holder_tables.waiters: _ALL,
    t.locks: (_READ, _ADD, "UPDATE (queue_id)"),
    # To compare the clock before its tasks. Without DELETE, it cannot accept the clock.
    t.clocks: (_READ, _ADD, "UPDATE (catalog_at, host_at, steady_at, jumped_at)"),
    t.dedup: (_READ,),
    record_tables.breakers: _ALL,
    record_tables.samples: _ALL,
    t.token_buckets: _ALL,
    t.shared_limits: (_READ,),
    t.flows: _ALL,
}

#: For each right on a table, the right on the sequence of its ids.
_NUMBERS = {_READ: _READ, _ADD: "USAGE", _CHANGE: _CHANGE}

_OPERATOR: dict[Table, Rights] = dict.fromkeys(t.metadata.sorted_tables, _ALL)

ROLES = {"reader": _READER, "producer": _PRODUCER, "consumer": _CONSUMER, "operator": _OPERATOR}


def statements(role: str, name: str, schema: str = "public") -> list[str]:
    """
    Return the statements that give the database role *name* the rights of a kind of role.

    Raises `BadOption`.
    """
    if role not in ROLES:
        raise BadOption(f"role={role!r}{nearest(role, ROLES)}; use {', '.join(ROLES)}")
    to, where = _quoted("name", name), _quoted("schema", schema)
    rights = ROLES[role]
    grants = [f"GRANT USAGE ON SCHEMA {where} TO {to};"]
    for table in t.metadata.sorted_tables:
        if table in rights:
            grants.append(f"GRANT {', '.join(rights[table])} ON {where}.{table.name} TO {to};")
            use = [_NUMBERS[right] for right in rights[table] if right in _NUMBERS]
            if table.autoincrement_column is not None and use:
                of = f"{where}.{table.name}_id_seq"
                grants.append(f"GRANT {', '.join(use)} ON SEQUENCE {of} TO {to};")
    return grants


def _quoted(option: str, name: str) -> str:
    if not name or "\0" in name or len(name.encode()) > 63:
        raise BadOption(f"{option}={name!r}: use a name of 1 to 63 bytes")
    return '"' + name.replace('"', '""') + '"'
