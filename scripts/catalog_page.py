# ruff: noqa: E501 the lines of the page
"""Write docs/catalog.md: the tables of the catalog, and the statements that the verbs send.

`make docs` runs it. Without a PostgreSQL server, it keeps the part of the page that needs one;
``python -m scripts.catalog_page`` starts a server, and writes the whole page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Column, Table
from sqlalchemy.dialects import postgresql, sqlite

from queue_core.catalog import holder_tables, record_tables, tables
from queue_core.catalog.format import FORMAT
from scripts.catalog_statements import recorded
from scripts.docstrings import markdown

PAGE = Path(__file__).parent.parent / "docs" / "catalog.md"

_HEAD = """# The catalog in SQL

This page describes a store so exactly that you can write a reader in any language. The example
[plain_reader.py](../examples/plain_reader.py) does so in Python, in fewer than 200 lines without ignis, and a test compares it with
`Queue.browse()`. `make docs` generates the tables from `queue_core/catalog/tables.py`, `holder_tables.py` and `record_tables.py`, and records the statements while it runs the
verbs; a test fails when this page is out of date.

This is format {format}. A later version may have another, and changes the number: read it first, and refuse a number that you do not
know ([versions](versions.md#formats)). If figures are all that you need, read the [views](monitoring.md#sql-views), which keep their
columns.

## What a catalog is

A store has two parts. The **catalog** is a database: a file `catalog.db` of SQLite in the store's folder, or a database of
PostgreSQL. The **storage** is that folder, or another folder or a bucket, and has Arrow files. What is in the storage is a message
only if the catalog says so.

A load writes its rows as a **segment**, which never changes: a file, or the column `data` if it is small. For each shard, it adds a
**slice**: neighbouring rows of the segment, at neighbouring places of the shard. Afterwards messages move by slices alone:

| what happens | what changes |
|---|---|
| load | a new row in `segments`, and new slices in state 0, at the load pointers of `shards`; with a log, also rows in `log_slices` |
| fire | slices at the lowest places get state 1, a consumer and a ticket; a slice that the limit cuts is split in two |
| delete, acknowledge | rows leave their slices; a slice without rows is deleted, then a segment that neither a slice nor a log names, and its file becomes garbage |
| sideline | rows become a slice in state 0 of magazine 1, at its tail, with one more attempt |
| reload | rows become a slice in state 0 at their old places |
| compaction | many small slices become one, of a new segment; `id_map` says which message is in which row |

So a message is in exactly one slice until it is deleted. The [protocol](protocol.md#1-states-of-a-message) has all transitions.

## How values are encoded

| value | encoding |
|---|---|
| times (`…_at`, `since`, `spent_until`) | microseconds since 1970 (UTC) by the clock of the database; on SQLite, whole milliseconds |
| magazine | 0: main; 1: sideline |
| state of a slice | 0: loaded, so its messages wait; 1: fired; 2: damaged, and left out by readers |
| message id | `(segments.id << 20) + row` of the segment with which it was loaded. It never changes. In a compacted segment, each row has its own id |
| rows of a slice | without `bitmap`, all from `row_start` to `row_stop - 1`. With it, those in it: a 32-bit roaring bitmap in the [portable format](https://github.com/RoaringBitmap/RoaringFormatSpec) |
| place of a row | `position + row - row_start`. Places order the messages of a magazine's shard. Slices with bitmaps can interleave: order rows, not slices |
| `schemas.arrow` | an Arrow schema, as one encapsulated IPC message |
| file at `segments.location` | an Arrow IPC file, relative to the storage; any Arrow tool opens it. Its buffers may be compressed |
| `segments.data` | the record batches of a small segment: encapsulated IPC messages one after another, without a schema and without an end. Read them with the schema of `schema_version` |
| `segments.chunks` | for each record batch 28 bytes, little-endian: how many row numbers it covers (uint32), and the offset, the length and the xxh3-64 checksum of its encapsulated message (uint64 each), in the file or in `data`. The first batch begins with row 0, and each other one where the one before ends. A file also has an empty first batch, which is no chunk |
| columns that were added later | a segment lacks the columns that are newer than its `schema_version`; they are null |
| compacted segment (it has a row in `id_map`) | its batches have three more columns after those of the schema: the message id (int64), the time of its load (timestamp in microseconds, UTC), and the row number (uint32). Find them by position. Rows ascend and can have gaps |
| `id_map.arrow` | an Arrow IPC stream with the columns `first_id`, `count` and `first_row`, one row per run of neighbouring ids in neighbouring rows. `first_id` and `first_row` are differences from the run before |
| `…arrow` otherwise | an Arrow IPC stream, possibly compressed |
| `seal` | a checksum of the row ([decision 0023](decisions/0023-rows-have-seals.md)): the sum of its numbers times the weights 101, 103, 105, … in the order of the columns, and of a hash of its texts. `queue_core/catalog/seals.py` has the exact rule, and the columns that it leaves out |

## What a reader does

To list the waiting messages of a queue, without taking any:

1. Begin a transaction that sees one state of the catalog (`BEGIN` on SQLite, `REPEATABLE READ` on PostgreSQL), and compare the
   format in `facts`.
2. Read `id` and `schema_version` of the queue, and all of its `schemas`: of a subscription, those of `root_id`.
3. Read its slices in magazine 0 and state 0, and the segments that they name.
4. Read the record batches at the chunks that have rows of the slices, and compare their checksums.
5. Take the rows of the slices, add nulls for newer columns, and order the rows by shard and place.

Of a subscription, these are the messages that it has taken in. Behind them come those that the log of `root_id` has for it: in each
shard, the rows of `log_slices` from its `cursor` on, up to `cursor_end` if that is not 0, if `log_of` is not 0 either. Its `selector`
may leave some of them out.

By default, a file is removed no sooner than an hour after its last message was settled. If a file is missing, begin again. A waiting message is not always
one that a firing takes now: it may have expired, be held, be a suspect, or be in a paused queue, as
[the protocol](protocol.md) and the [settings](settings.md) say.

## What a consumer does besides

A consumer changes the catalog, and must keep all rules that the others rely on:

1. Have a row in `consumers`, with an `epoch` that grows with each start. Each of its transactions checks the epoch: an older life
   must change nothing.
2. Take all locks in [their order](protocol.md#7-the-order-of-locks). On SQLite, begin with `BEGIN IMMEDIATE`, which locks everything. On
   PostgreSQL, lock the row in `shard_locks` before you read slices: otherwise, a later message could be fired before an earlier one.
3. Take the lowest places of a shard, and split a slice that is taken in part. Add the messages to `shard_locks.fired`, take the ticket
   from `consumers.last_ticket`, and write both into the slices.
4. Settle only rows that are still in state 1 under its consumer and ticket, in one transaction with the counters. Delete segments
   that no slice names and whose `log_rows` are 0, with their rows in `id_map`, and set their files to `garbage`.
5. Write seals: add the gain of each change, as the statements below do.
6. Write `heartbeat_at` every few seconds: after 60 seconds without it, a consumer counts as dead, and sweeps may take its messages.
7. [Notify](protocol.md#7-the-order-of-locks) the others of new messages and of room: on PostgreSQL with `NOTIFY ignis` and the ids of
   the queues, on SQLite in the header's `user_version` and the table `notified`, which is no part of the format.
8. Obey the settings of the queue: expiry, limits, claims of other consumers, turns of values.

To have work done in another language, it is usually better to let ignis fire and settle, and to pass on the messages.

## Tables

A name in **bold** is in the primary key. Where the types differ, the first one is PostgreSQL's.
"""

#: Columns that mean the same in all tables, unless a comment says more.
_COMMON = {
    "queue_id": "`queues.id`",
    "magazine": "0: main; 1: sideline.",
    "shard": "From 0.",
    "consumer_id": "`consumers.id`",
    "seal": "The checksum of the row.",
    "version": "Grows with each change of the row. In PostgreSQL, the key of the table is an index "
    "of the shard and the version.",
}
_DECLARED = re.compile(r'^(?:(\w+) = Table\(| +Column\("(\w+)")')

#: The verbs, and what is said of their statements: the first that begins so and was not said yet.
_VERBS = {
    "load": (
        "A load of eight messages into a queue with one shard. The segment is small, so it is in the catalog; for a file, a row "
        "in `files` comes first.",
        [
            ("INSERT INTO segments", "Publish the segment; its id gives the message ids."),
            (
                "UPDATE shards",
                "Reserve places at the tail. It changes no row if the queue was deactivated, or has "
                "other settings by now.",
            ),
            ("INSERT INTO slices", "Add a slice for each run of rows, in state 0."),
        ],
    ),
    "fire": (
        "A firing of four messages. A first transaction only reads.",
        [
            (
                "BEGIN",
                "Begin to read. A transaction that writes begins with `BEGIN IMMEDIATE` instead.",
            ),
            (
                "SELECT queues.id",
                "Check that the queue is in use, and that no other consumer goes first.",
            ),
            (
                "SELECT (SELECT EXISTS",
                "Look for a message that waits, and for suspects.",
            ),
            ("SELECT consumers.last_ticket", "Lock the consumer, and check its epoch."),
            ("SELECT shard_locks.queue_id", "Read the backlog of each shard."),
            ("SELECT shard_locks.queue_id", "Lock the chosen shards; skip locked ones."),
            (
                "SELECT found.id",
                "Read the first slices of each shard: one more than there are messages to take.",
            ),
            ("UPDATE consumers", "Take the next ticket, if the epoch is still the newest."),
            ("UPDATE slices", "Cut the slice: this row keeps the messages that are not fired."),
            ("INSERT INTO slices", "Add the slice that is fired, in state 1."),
            ("UPDATE shard_locks", "Advance the fire pointer, and count the messages."),
            ("SELECT segments.id", "Find the segments with the messages."),
        ],
    ),
    "settle": (
        "A settlement of these four messages: two are deleted, one goes to the sideline, one is reloaded.",
        [
            (
                "SELECT anon_1.moved",
                "Check that the ids exist, and look for compactions that have moved messages.",
            ),
            (
                "SELECT slices.id",
                "Read the slices of these segments that the consumer holds.",
            ),
            ("SELECT queues.id", "Read the settings, for the policy of retries, and the time."),
            ("INSERT INTO slices", "Put the reloaded message back at its old place."),
            ("UPDATE shards", "Reserve a place at the tail of the sideline."),
            ("INSERT INTO slices", "Add the failed message there, with one more attempt."),
            ("DELETE FROM slices", "Remove the slice that was fired."),
            (
                "DELETE FROM segments",
                "Remove the segment if no slice names it; `id_map` and `files` then follow.",
            ),
            ("UPDATE counters", "Count the outcomes."),
            ("INSERT INTO failures", "Record why the message failed."),
            ("INSERT INTO tallies", "Add to the number of failures of each kind."),
        ],
    ),
    "acknowledge": (
        "An acknowledgement of a query's ticket with two messages, which deletes them.",
        [
            ("SELECT facts.value", "Find out whether the catalog was restored."),
            ("UPDATE consumers", "Close the tickets up to this one, if the epoch is the newest."),
            ("DELETE FROM tickets", "Remove their rows."),
            ("SELECT slices.id", "Read the slices that they still hold."),
            ("DELETE FROM slices", "Delete the messages."),
            ("DELETE FROM segments", "Remove the segment if no slice names it."),
            ("UPDATE counters", "Count the messages."),
        ],
    ),
}
#: What ends each verb that makes messages available.
_NOTIFYING = [
    (
        "INSERT INTO notified",
        "Notify those who wait: count up the number of the queue, and read that in the file's "
        "header.",
    ),
    ("PRAGMA user_version =", "Count up the number in the file's header."),
    ("SELECT pg_notify", "Notify those who wait, after the commit, in another transaction."),
]
_POSTGRESQL = "## Statements on PostgreSQL"


def page(catalog: str | None = None) -> str:
    """Return the whole page; without the URL of a PostgreSQL catalog, that part is as it was."""
    declared = [name for name in _comments() if name in tables.metadata.tables]
    head = [
        _HEAD.replace("{format}", str(FORMAT)),
        *(_table(tables.metadata.tables[name]) for name in declared),
    ]
    lite = statements(
        "## Statements on SQLite",
        "A `?` stands for a parameter. But for the reads with which a firing begins, the statements of a verb are one transaction.",
        recorded(),
    )
    if catalog is not None:
        return "\n".join([*head, lite, on_postgresql(catalog)])
    return "\n".join([*head, lite, _POSTGRESQL + PAGE.read_text().partition(_POSTGRESQL)[2]])


def on_postgresql(catalog: str) -> str:
    """Return the part of the page about PostgreSQL, from an empty catalog there."""
    about = "The same calls. A parameter has a name here, such as `%(queue)s`, and a type."
    return statements(_POSTGRESQL, about, recorded(catalog))


def statements(title: str, about: str, found: Mapping[str, list[str]]) -> str:
    """Return a section with recorded statements."""
    parts = [title, "", about, ""]
    for verb, (does, said) in _VERBS.items():
        parts += [f"### {verb.capitalize()}", "", does, ""]
        left = [*said, *_NOTIFYING]
        for statement in found[verb]:
            # An error here: a verb sends another statement, which needs a sentence.
            why = next(each for each in left if statement.startswith(each[0]))
            left.remove(why)
            parts += [why[1], "", "```sql", statement, "```", ""]
    return "\n".join(parts)


def _table(table: Table) -> str:
    """Return the section of a table."""
    comments = _comments()
    rows = [_row(column, comments) for column in table.columns]
    parts = [f"### `{table.name}`", "", comments[table.name], ""]
    parts += ["| column | type | null | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _row(column: Column[object], comments: Mapping[str, str]) -> str:
    types = [column.type.compile(each.dialect()) for each in (postgresql, sqlite)]
    name = f"**`{column.name}`**" if column.primary_key else f"`{column.name}`"
    meaning = comments.get(f"{column.table.name}.{column.name}") or _COMMON[column.name]
    kinds = " / ".join(dict.fromkeys(types))
    return f"| {name} | {kinds} | {'yes' if column.nullable else ''} | {meaning} |"


def _comments() -> dict[str, str]:
    """Return the comments of tables, by name, and of columns, as ``table.column``."""
    found: dict[str, str] = {}
    table, lines = "", []
    modules = (tables, holder_tables, record_tables)
    source = "\n".join(Path(each.__file__).read_text() for each in modules)
    for line in source.splitlines():
        declared = _DECLARED.match(line)
        if declared:
            table = declared[1] or table
            name = declared[1] or f"{table}.{declared[2]}"
            found[name] = markdown(" ".join(lines))
        comment = re.match(r" *#: (.*)", line)
        lines = [*lines, comment[1]] if comment else []
    return found


def main() -> None:
    """Write the whole page, with a server of PostgreSQL."""
    from tests.servers import postgres

    with postgres() as server, server.database() as url:
        PAGE.write_text(page(url))


if __name__ == "__main__":
    main()
