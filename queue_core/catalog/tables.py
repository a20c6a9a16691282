"""The tables of queues and messages; `holder_tables` and `record_tables` have the others.

Columns that end in ``_at`` are microseconds since 1970 by the database's clock. A new name needs a
new format: `queue_core.catalog.format`.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
    and_,
    text,
)

from queue_core.catalog import (
    holder_tables,  # noqa: F401 - the metadata has these tables, too
    record_tables,  # noqa: F401 - and these
    table_parts,
)
from queue_core.catalog.table_parts import Id, seal, version

metadata = table_parts.metadata

#: One row per fact about the store itself: its format version and its id.
facts = Table(
    "facts",
    metadata,
    #: ``format``, ``store`` (its id), ``storage``, and others that tell copies of a store apart.
    Column("name", String(64), primary_key=True),
    #: The fact as text.
    Column("value", Text, nullable=False),
)

#: The queues of the store.
queues = Table(
    "queues",
    metadata,
    #: Never used again.
    Column("id", Id, primary_key=True, autoincrement=True),
    #: Letters, digits and a few signs: it is a folder in the storage.
    Column("name", String(128), nullable=False, unique=True),
    #: How many shards each of its magazines has; it never changes.
    Column("shards", Integer, nullable=False),
    #: The column whose hash picks the shard; null: the loads pick it in turn.
    Column("key_column", String(255)),
    #: The version of its present columns in `schemas`. Readers and sinks compare it with theirs.
    Column("schema_version", Integer, nullable=False),
    #: The settings, as JSON. Each load and firing reads them again.
    Column("settings", Text, nullable=False),
    #: When it was created.
    Column("created_at", BigInteger, nullable=False),
    #: When it was deactivated; null while it is in use.
    Column("deactivated_at", BigInteger),
    seal(),
    #: Since when it fires nothing; null while it is not paused.
    Column("paused_at", BigInteger),
    #: Of a subscription: the queue whose log it reads, which also has its schemas and segments.
    #: 0: it is no subscription.
    Column("root_id", BigInteger, nullable=False, server_default=text("0")),
    #: Since when a subscription takes nothing more from the log; 0: it does.
    Column("detached_at", BigInteger, nullable=False, server_default=text("0")),
    #: Of a snapshot: the subscription whose state it keeps; 0: it is no snapshot.
    Column("snapshot_of", BigInteger, nullable=False, server_default=text("0")),
    #: When a snapshot may be removed, or since when a late subscription is to be dropped; 0: never.
    #: With a minus: when a subscription was attached, or moved by a seek.
    Column("ends_at", BigInteger, nullable=False, server_default=text("0")),
    sqlite_autoincrement=True,
)

#: Every schema that a queue has had. A segment is read with the schema it was written with.
schemas = Table(
    "schemas",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    #: From 1. Each new version adds columns.
    Column("version", Integer, primary_key=True),
    #: The columns: an Arrow schema in an IPC message.
    Column("arrow", LargeBinary, nullable=False),
    seal(),
)

#: Load pointers, which loads advance. A table of its own, so that loading and firing do not wait
#: for each other.
shards = Table(
    "shards",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("magazine", SmallInteger, primary_key=True),
    Column("shard", Integer, primary_key=True),
    #: The place of the next message that is loaded.
    Column("load_pointer", BigInteger, nullable=False),
    #: Messages that came in, by any verb.
    Column("loaded", BigInteger, nullable=False),
    seal(),
    #: 1 while loads write the queue's log; 0: it has none.
    Column("log", SmallInteger, nullable=False, server_default=text("0")),
    #: New messages that were loaded, by a queue with or without a log: the offset of the next one.
    Column("logged", BigInteger, nullable=False, server_default=text("0")),
    #: Their bytes.
    Column("logged_bytes", BigInteger, nullable=False, server_default=text("0")),
    version(),
)

#: Fire pointers, which firings advance. The row is also the lock of its shard. A firing locks it;
#: otherwise, a later message could be fired before an earlier one that another firing has locked.
shard_locks = Table(
    "shard_locks",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("magazine", SmallInteger, primary_key=True),
    Column("shard", Integer, primary_key=True),
    #: One past the furthest place that was fired.
    Column("fire_pointer", BigInteger, nullable=False),
    #: Messages that were fired, by any verb.
    Column("fired", BigInteger, nullable=False),
    seal(),
    #: In main of a subscription: the queue whose log it reads; 0: of others, or nothing more.
    Column("log_of", BigInteger, nullable=False, server_default=text("0")),
    #: The offset of the first message of the log that the subscription has not taken in.
    Column("cursor", BigInteger, nullable=False, server_default=text("0")),
    #: The offset of the first message that it does not take in; 0: it takes in all.
    Column("cursor_end", BigInteger, nullable=False, server_default=text("0")),
    version(),
    #: No message waits before this place while *head_released* is what `counters` has. Firings on a
    #: server begin there, since it may keep those that were fired before.
    Column("head", BigInteger, nullable=False, server_default=text("0")),
    #: How many messages had been released when *head* was found.
    Column("head_released", BigInteger, nullable=False, server_default=text("0")),
)

#: Outcomes of the messages in a shard, counted since its creation.
counters = Table(
    "counters",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("magazine", SmallInteger, primary_key=True),
    Column("shard", Integer, primary_key=True),
    #: Fired messages that wait again at their old places.
    Column("reloaded", BigInteger, nullable=False),
    #: Settled, and gone.
    Column("deleted", BigInteger, nullable=False),
    #: Left for the sideline: they failed, were put off, or were moved by a person.
    Column("sidelined", BigInteger, nullable=False),
    #: Left the sideline for main, or for another queue.
    Column("shovelled", BigInteger, nullable=False),
    #: Of these, messages that left it for main.
    Column("returned", BigInteger, nullable=False),
    #: Left for the sideline because they were stuck.
    Column("swept", BigInteger, nullable=False),
    #: Set apart because their segment cannot be read.
    Column("damaged", BigInteger, nullable=False),
    #: Removed because they had expired.
    Column("expired", BigInteger, nullable=False),
    #: Left out of a load, as duplicates or by a policy.
    Column("ignored", BigInteger, nullable=False),
    #: Removed because a new message replaced them, by a policy.
    Column("replaced", BigInteger, nullable=False),
    #: Removed by a full ring, a seek, or a load into a rendezvous that gave up.
    Column("dropped", BigInteger, nullable=False),
    #: The place at which an interrupted sweep continues.
    Column("sweep_pointer", BigInteger, nullable=False),
    seal(),
    version(),
    #: Messages that have come back to their old places, by any verb, and in a queue with groups
    #: those that a compaction has written; it never falls.
    Column("released", BigInteger, nullable=False, server_default=text("0")),
)


#: The counters of messages that have left a shard.
LEFT = ("deleted", "sidelined", "shovelled", "swept", "expired", "replaced", "dropped")


def same_shard(one: Table, other: Table) -> ColumnElement[bool]:
    """Return the condition that rows of two tables belong to one shard."""
    return and_(*(one.c[key] == other.c[key] for key in ("queue_id", "magazine", "shard")))


#: Load pointer, fire pointer and counters of each shard, side by side.
shard_totals = shards.join(shard_locks, same_shard(shards, shard_locks)).join(
    counters, same_shard(shards, counters)
)

#: The Arrow data of messages: in a file of the storage or, if small, in the row.
segments = Table(
    "segments",
    metadata,
    #: The first part of the ids of its messages, unless compaction has written it.
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    #: The schema with which it was written; columns of later ones are null.
    Column("schema_version", Integer, nullable=False),
    #: The file in the storage, as in `files`; null when *data* holds the bytes.
    Column("file", String(400)),
    #: The record batches, one after another, each as an encapsulated IPC message without a
    #: schema.
    Column("data", LargeBinary),
    #: How many row numbers it has; in a compacted one with gaps, more than rows.
    Column("rows", Integer, nullable=False),
    #: The memory that a reader of all rows needs.
    Column("bytes", BigInteger, nullable=False),
    #: The rows, the offset, the length and the checksum of each record batch, as bytes.
    Column("chunks", LargeBinary, nullable=False),
    #: When it was published. In a compacted segment each row has its own time.
    Column("loaded_at", BigInteger, nullable=False),
    seal(),
    #: How many rows of `log_slices` name it. It stays while there are some.
    Column("log_rows", Integer, nullable=False, server_default=text("0")),
    # Inlined segments, which may be very many, are not in the index.
    Index(
        "segments_by_location",
        "file",
        unique=True,
        info={"where": "file IS NOT NULL"},
    ),
    # Ids are never reused: they are part of message ids.
    sqlite_autoincrement=True,
)

#: The message ids in segments that compaction has written; messages keep their ids.
id_map = Table(
    "id_map",
    metadata,
    #: The segment that was written.
    Column("segment_id", BigInteger, primary_key=True, autoincrement=False),
    #: The queue whose messages are in it. A queue's number with a minus: they are in its log, and
    #: a subscription has a row of its own as soon as it has taken some.
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
    #: The lowest message id in it.
    Column("first_id", BigInteger, nullable=False),
    #: The highest message id in it.
    Column("last_id", BigInteger, nullable=False),
    #: Runs of ids and their rows: an Arrow table, as an IPC stream.
    Column("arrow", LargeBinary, nullable=False),
    seal(),
    Index("id_map_by_ids", "queue_id", "last_id"),
)

#: Every file that is published or being removed. Publishing and condemning both insert its
#: location, so that one of the two is refused.
files = Table(
    "files",
    metadata,
    #: Relative to the storage, as in `segments`.
    Column("location", String(400), primary_key=True),
    #: ``live``, ``garbage`` (no slice names it), ``condemned`` (it is being removed) or ``found``
    #: (it lay beside a catalog that was restored, which does not know it).
    Column("state", String(16), nullable=False),
    #: Microseconds: since when it has this state. Vacuum waits for its age.
    Column("since", BigInteger, nullable=False),
)

#: Neighbouring rows of a segment, in one shard and one state. All that happens to messages
#: happens to slices.
slices = Table(
    "slices",
    metadata,
    #: No part of any message id: a slice that is split or compacted gets other slices. One that
    #: moves whole keeps its row.
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    Column("magazine", SmallInteger, nullable=False),
    Column("shard", Integer, nullable=False),
    #: 0: loaded, which is waiting; 1: fired, which is in flight; 2: damaged.
    Column("state", SmallInteger, nullable=False),
    #: Place of the first row in its shard; the place of row r is position + r - row_start.
    Column("position", BigInteger, nullable=False),
    #: The segment with the rows.
    Column("segment_id", BigInteger, nullable=False),
    #: The lowest row.
    Column("row_start", Integer, nullable=False),
    #: One past the highest row.
    Column("row_stop", Integer, nullable=False),
    #: The rows when they have gaps: a roaring bitmap in the portable format. Null: all rows.
    Column("bitmap", LargeBinary),
    #: How many messages it has. Counts, limits and the check of the store add it up.
    Column("count", Integer, nullable=False),
    #: Its share of the segment's bytes. Limits of firings, bounded queues and compaction add it
    #: up.
    Column("bytes", BigInteger, nullable=False),
    #: How often the messages have failed. Readers show it as ``_attempt``; retries decide by it.
    Column("attempts", Integer, nullable=False),
    #: How often they were fired, without losses. The setting `max_deliveries` is a bound for it.
    Column("deliveries", Integer, nullable=False),
    #: When the oldest of its messages was loaded. Expiry, rings and figures of age read it.
    Column("loaded_at", BigInteger, nullable=False),
    #: When they came into this magazine. An order across shards breaks ties by it.
    Column("moved_at", BigInteger, nullable=False),
    #: The consumer that holds them; null while they wait.
    Column("consumer_id", BigInteger),
    #: The ticket of that consumer; null while they wait. An acknowledgement finds slices by it.
    Column("ticket", BigInteger),
    #: When it was last fired, or stamped by a shovel; null: never. A slice that waits again
    #: keeps it. Readers show it as ``_fired_at``; sweeps take slices that are in flight for too
    #: long, a query that ends at a horizon leaves out later firings, and after a restore an
    #: acknowledgement doubts earlier ones.
    Column("fired_at", BigInteger),
    #: Statistics of the attribute columns, as JSON. Selectors and orders skip slices by it.
    Column("stats", Text),
    seal(),
    #: In the sideline: when it is to return to main; null: no time; 2^62, `due.NEVER`: it is
    #: dead.
    Column("due_at", BigInteger),
    #: In main of a fair queue: the rank of the first row.
    Column("rank", BigInteger),
    #: In main of a fair queue: by how much the rank grows with each row.
    Column("rank_step", BigInteger),
    #: How often the messages were lost with their consumer since they were settled last; 0 if
    #: they were not.
    Column("lost", SmallInteger, nullable=False, server_default=text("0")),
    #: How many messages that consumer held when they were lost last. More than 0 marks suspects,
    #: which are fired apart from others.
    Column("lost_among", Integer, nullable=False, server_default=text("0")),
    # With the bytes, so that the index alone is enough to add up those of a bounded queue.
    Index("slices_in_order", "queue_id", "magazine", "state", "shard", "position", "bytes"),
    Index("slices_of_segment", "segment_id"),
    Index(
        "slices_of_ticket",
        "consumer_id",
        "ticket",
        info={"where": "consumer_id IS NOT NULL"},
    ),
    # Few slices have a time, so that main does not pay for it.
    Index("slices_due", "queue_id", "due_at", info={"where": "due_at IS NOT NULL"}),
    # Only slices of fair queues have a rank, so that others do not pay for it.
    Index(
        "slices_by_rank",
        *("queue_id", "magazine", "state", "rank", "position", "shard"),
        info={"where": "rank IS NOT NULL"},
    ),
    # Few messages are lost, and each firing asks whether there are some.
    Index("slices_lost", "queue_id", "magazine", info={"where": "lost_among > 0"}),
)

#: The logs of queues, by shards: where they begin. Who reads from a log locks the row for reading,
#: and who trims it for writing; loads never touch it.
logs = Table(
    "logs",
    metadata,
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
    Column("shard", Integer, primary_key=True, autoincrement=False),
    #: The offset of the first message that is kept.
    Column("start", BigInteger, nullable=False),
    seal(),
)

#: The messages in the logs of queues: one row for each load, segment and shard, which is removed
#: once it is too old. Compaction lets small neighbours become one row; nothing else changes them.
log_slices = Table(
    "log_slices",
    metadata,
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
    Column("shard", Integer, primary_key=True, autoincrement=False),
    #: That of the first message: how many were loaded into the shard before it.
    Column("first_offset", BigInteger, primary_key=True, autoincrement=False),
    #: The segment with the rows.
    Column("segment_id", BigInteger, nullable=False),
    #: The lowest row.
    Column("row_start", Integer, nullable=False),
    #: One past the highest row.
    Column("row_stop", Integer, nullable=False),
    #: The rows when they have gaps: a roaring bitmap in the portable format. Null: all rows.
    Column("bitmap", LargeBinary),
    #: How many messages it has.
    Column("count", Integer, nullable=False),
    #: Its share of the segment's bytes.
    Column("bytes", BigInteger, nullable=False),
    #: The bytes of all messages that were loaded into the shard before it.
    Column("bytes_before", BigInteger, nullable=False),
    #: When its places were allocated: in the order of offsets, unless the clock was set back.
    Column("logged_at", BigInteger, nullable=False),
    #: When its segment was published, as slices of it have.
    Column("loaded_at", BigInteger, nullable=False),
    #: Statistics of the attribute columns, as JSON.
    Column("stats", Text),
    seal(),
    #: 1: compaction has written the segment, so that a row number is not the message's id.
    Column("compacted", SmallInteger, nullable=False, server_default=text("0")),
    info={"by_key": True},
)

#: Keys of recently loaded messages, as bytes (`queue_core.segments.key_bytes`).
dedup = Table(
    "dedup",
    metadata,
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
    #: The key, or the hash of a long one.
    Column("key", LargeBinary, primary_key=True),
    #: When a message with the key was last loaded. The key is forgotten after `dedup_window`.
    Column("loaded_at", BigInteger, nullable=False),
    Index("dedup_by_age", "queue_id", "loaded_at"),
    info={"by_key": True},
)

#: The beginning of the names of locks under which the ids of a table are raised.
IDS_OF = "ids of "

#: Rows that transactions lock until they end. They hold no other data. Advisory locks would be
#: wrong: every role of the database can take them.
locks = Table(
    "locks",
    metadata,
    #: ``task_log``; ``room`` and ``interests`` of a queue; ``ids of`` and a table, for a takeover.
    Column("name", String(32), primary_key=True),
    #: 0 for a lock of the whole store; of ids, the timeline of the server, as a negative number.
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
)

#: For each machine: the catalog's time and its own stopwatch at its last look.
clocks = Table(
    "clocks",
    metadata,
    #: The id of its boot: a stopwatch begins again with each.
    Column("host", String(64), primary_key=True),
    #: The catalog's time at the last look.
    Column("catalog_at", BigInteger, nullable=False),
    #: The stopwatch of the machine at the last look, in microseconds.
    Column("host_at", BigInteger, nullable=False),
    #: Until when it waits, by its stopwatch, after a time in which no machine watched the clock.
    Column("steady_at", BigInteger, nullable=False),
    #: The catalog's time when this machine saw it jump; null if it did not.
    Column("jumped_at", BigInteger),
)

#: The buckets of limits: one row per queue, per name of a limit, and per value of a column that has
#: lately been fired.
token_buckets = Table(
    "token_buckets",
    metadata,
    #: 0 for the bucket of a name.
    Column("queue_id", BigInteger, primary_key=True),
    #: The column of the limit; empty for the whole queue, and for a name. Each firing of a queue
    #: with limits locks these rows.
    Column("of_column", String(255), primary_key=True),
    #: The value as JSON; empty for the whole queue; or the name.
    Column("value", String(400), primary_key=True),
    #: Up to which time the tokens are spent; null: none was spent.
    Column("spent_until", BigInteger),
)

#: Which queues share a limit that has a name: one row per name in the limits of a queue.
shared_limits = Table(
    "shared_limits",
    metadata,
    #: The name of the limit.
    Column("name", String(100), primary_key=True),
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
)

#: The flows of fair queues that have messages waiting, and the virtual time of each fair queue.
flows = Table(
    "flows",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    #: A hash of a value of the column `fair_by`; 0: the queue, 1: messages that came back.
    Column("flow", BigInteger, primary_key=True, autoincrement=False),
    #: The rank after its last message; of the queue: the highest rank that was fired.
    Column("finish", BigInteger, nullable=False),
)

#: The tables whose ids the database assigns.
NUMBERED = tuple(
    table for table in metadata.sorted_tables if table.autoincrement_column is not None
)
#: The tables whose rows change with most transactions.
VERSIONED = (shards, shard_locks, counters)
#: The tables whose rows have a seal.
SEALED = tuple(table for table in metadata.sorted_tables if "seal" in table.c)
