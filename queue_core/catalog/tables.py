"""The tables of the catalog. Times are microseconds since 1970, by the database's clock."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    and_,
    text,
)

metadata = MetaData()

# SQLite numbers rows by itself only in a column of exactly the type INTEGER.
_Id = BigInteger().with_variant(Integer(), "sqlite")

#: One row per fact about the store itself: its format version and its id.
facts = Table(
    "facts",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

queues = Table(
    "queues",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("name", String(128), nullable=False, unique=True),
    Column("shards", Integer, nullable=False),
    #: The column whose hash picks the shard.
    Column("key_column", String(255)),
    Column("schema_version", Integer, nullable=False),
    Column("settings", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    #: When it was given up; null while it is in use.
    Column("deactivated_at", BigInteger),
    sqlite_autoincrement=True,
)

#: Every schema a queue has had: older segments are read with the one they were written with.
schemas = Table(
    "schemas",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("arrow", LargeBinary, nullable=False),
)

#: Load pointers: what a load advances. Apart from `counters`, so that loading and firing do not
#: wait for each other.
shards = Table(
    "shards",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("magazine", SmallInteger, primary_key=True),
    Column("shard", Integer, primary_key=True),
    #: The place of the next message.
    Column("load_pointer", BigInteger, nullable=False),
    #: Messages that came in, by whichever verb.
    Column("loaded", BigInteger, nullable=False),
)

#: Fire pointers: what a firing advances. A row is its shard's turn as well: whoever fires locks it,
#: or a later message could be fired before an earlier one which another firing looks at and leaves.
turns = Table(
    "turns",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("magazine", SmallInteger, primary_key=True),
    Column("shard", Integer, primary_key=True),
    #: One past the furthest place that was fired.
    Column("fire_pointer", BigInteger, nullable=False),
    #: Messages that were fired, by whichever verb.
    Column("fired", BigInteger, nullable=False),
)

#: What became of fired messages in a shard, counted since its beginning.
counters = Table(
    "counters",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("magazine", SmallInteger, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("reloaded", BigInteger, nullable=False),
    Column("deleted", BigInteger, nullable=False),
    #: Left for the sideline because they failed.
    Column("sidelined", BigInteger, nullable=False),
    #: Left the sideline for main.
    Column("shovelled", BigInteger, nullable=False),
    #: Left for the sideline because they were stuck.
    Column("swept", BigInteger, nullable=False),
    #: Set apart because their segment cannot be read.
    Column("damaged", BigInteger, nullable=False),
    #: Gone because nobody had finished them in time.
    Column("expired", BigInteger, nullable=False),
    #: Left out when it was loaded, because it was known already or a policy said so.
    Column("ignored", BigInteger, nullable=False),
    #: Gone because a new message took its place, by a policy.
    Column("replaced", BigInteger, nullable=False),
    #: Gone because the queue was full.
    Column("dropped", BigInteger, nullable=False),
    #: The place from which a sweep that was interrupted goes on.
    Column("sweep_pointer", BigInteger, nullable=False),
)


def _same_place(one: Table, other: Table) -> ColumnElement[bool]:
    return and_(*(one.c[key] == other.c[key] for key in ("queue_id", "magazine", "shard")))


#: Load pointer, fire pointer and counters of each shard, side by side.
shard_totals = shards.join(turns, _same_place(shards, turns)).join(
    counters, _same_place(shards, counters)
)

segments = Table(
    "segments",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    Column("schema_version", Integer, nullable=False),
    #: The file in the storage; null when *data* holds the bytes.
    Column("location", String(400)),
    Column("data", LargeBinary),
    Column("rows", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    #: Where each record batch lies, and its checksum.
    Column("chunks", LargeBinary, nullable=False),
    #: When it was published; a compacted one says in its rows when each of them was.
    Column("loaded_at", BigInteger, nullable=False),
    # Inlined segments, of which there may be very many, are not in the index.
    Index(
        "segments_by_location",
        "location",
        unique=True,
        sqlite_where=text("location IS NOT NULL"),
        postgresql_where=text("location IS NOT NULL"),
    ),
    # Ids are never used twice: they are part of message ids.
    sqlite_autoincrement=True,
)

#: Segments that compaction has written: the ids that their rows had before, and keep.
id_map = Table(
    "id_map",
    metadata,
    Column("segment_id", BigInteger, primary_key=True, autoincrement=False),
    Column("queue_id", BigInteger, nullable=False),
    #: The lowest and the highest message id in it.
    Column("first_id", BigInteger, nullable=False),
    Column("last_id", BigInteger, nullable=False),
    #: Runs of ids and the rows that they are: an Arrow table.
    Column("arrow", LargeBinary, nullable=False),
    Index("id_map_by_ids", "queue_id", "last_id"),
)

#: Every file that was ever published or is being removed. Publishing inserts its location and so
#: does condemning, so that one of the two is refused.
files = Table(
    "files",
    metadata,
    Column("location", String(400), primary_key=True),
    #: ``live``, ``garbage`` (no slice names it any more) or ``condemned`` (it is being removed).
    Column("state", String(16), nullable=False),
    Column("since", BigInteger, nullable=False),
)

slices = Table(
    "slices",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    Column("magazine", SmallInteger, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("state", SmallInteger, nullable=False),
    #: Place of the first row in its shard.
    Column("position", BigInteger, nullable=False),
    Column("segment_id", BigInteger, nullable=False),
    Column("row_start", Integer, nullable=False),
    Column("row_stop", Integer, nullable=False),
    #: The rows when they have gaps: a roaring bitmap.
    Column("bitmap", LargeBinary),
    Column("count", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("deliveries", Integer, nullable=False),
    #: When the oldest of its messages was loaded.
    Column("loaded_at", BigInteger, nullable=False),
    #: When they came into this magazine.
    Column("moved_at", BigInteger, nullable=False),
    Column("consumer_id", BigInteger),
    Column("ticket", BigInteger),
    #: When it was fired, or stamped by a shovel.
    Column("fired_at", BigInteger),
    #: Statistics of the attribute columns, as JSON.
    Column("stats", Text),
    # With the bytes, so that those of a bounded queue are counted without a look at its slices.
    Index("slices_in_order", "queue_id", "magazine", "state", "shard", "position", "bytes"),
    Index("slices_of_segment", "segment_id"),
    Index(
        "slices_of_ticket",
        "consumer_id",
        "ticket",
        sqlite_where=text("consumer_id IS NOT NULL"),
        postgresql_where=text("consumer_id IS NOT NULL"),
    ),
)

consumers = Table(
    "consumers",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("name", String(200), nullable=False, unique=True),
    #: Grows each time the consumer is started; an older life is fenced off.
    Column("epoch", BigInteger, nullable=False),
    #: The number of the last ticket.
    Column("last_ticket", BigInteger, nullable=False),
    #: The last ticket that is done with: what it still holds is nobody's work any more.
    Column("acknowledged", BigInteger, nullable=False),
    #: When it last said that it lives; null if it never does.
    Column("heartbeat_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

#: What consumers want of queues, as those say who care who goes first.
interests = Table(
    "interests",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("consumer_id", BigInteger, primary_key=True),
    #: The higher goes first; null: before all.
    Column("priority", Integer),
    #: ``shared``, ``exclusive`` or ``single``.
    Column("claim", String(16), nullable=False),
    #: Whether it would take messages now.
    Column("interested", Boolean, nullable=False),
    Column("registered_at", BigInteger, nullable=False),
    Index("interests_of_consumer", "consumer_id"),
)

tickets = Table(
    "tickets",
    metadata,
    Column("consumer_id", BigInteger, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("fired_at", BigInteger, nullable=False),
    #: When somebody was first shown its messages; null if nobody ever was.
    Column("planned_at", BigInteger),
    #: How many lives of the consumer were shown them, and which was the last.
    Column("lives", Integer, nullable=False, server_default="0"),
    Column("planned_epoch", BigInteger),
    #: A browser's ticket holds no slices but ranges of places: JSON.
    Column("browsed", Text),
)

#: The last batch that each streaming query has published to each queue.
publications = Table(
    "publications",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("query_id", String(200), primary_key=True),
    Column("batch_id", BigInteger, nullable=False),
    Column("published_at", BigInteger, nullable=False),
)

#: Why messages were sidelined: one row per settlement, an Arrow table of its messages in it.
failures = Table(
    "failures",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    Column("failed_at", BigInteger, nullable=False),
    Column("consumer", String(200)),
    Column("arrow", LargeBinary, nullable=False),
    Index("failures_of_queue", "queue_id", "failed_at"),
)

#: What side tasks have done: one row per transaction that moved something, an Arrow table in it.
task_log = Table(
    "task_log",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    Column("task", String(32), nullable=False),
    Column("done_at", BigInteger, nullable=False),
    Column("arrow", LargeBinary, nullable=False),
    Index("task_log_of_task", "task", "id"),
    sqlite_autoincrement=True,
)

#: When each side task of each queue was last begun, so that of many processes one runs it.
schedule = Table(
    "schedule",
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("task", String(32), primary_key=True),
    Column("begun_at", BigInteger, nullable=False),
    #: When it is due again.
    Column("due_at", BigInteger, nullable=False),
)

#: Those who wait for room in a queue, or for messages, in the order in which they came.
waiters = Table(
    "waiters",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    #: The verb that waits: ``load`` or ``fire``.
    Column("verb", String(8), nullable=False),
    Column("joined_at", BigInteger, nullable=False),
    #: Until when it counts as alive, unless it says so again.
    Column("alive_until", BigInteger, nullable=False),
    Index("waiters_in_order", "queue_id", "verb", "id"),
    # Or one who comes later could get the number of one who left, and stand before others.
    sqlite_autoincrement=True,
)

#: Keys of messages that were loaded a short while ago: one row per load, an Arrow table in it.
dedup = Table(
    "dedup",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("queue_id", BigInteger, nullable=False),
    #: When the newest of them was loaded, and until when they have to be known.
    Column("loaded_at", BigInteger, nullable=False),
    Column("known_until", BigInteger, nullable=False),
    #: How many there are.
    Column("count", BigInteger, nullable=False),
    Column("arrow", LargeBinary, nullable=False),
    Index("dedup_of_queue", "queue_id", "loaded_at"),
    # By the highest id one sees whether something was added.
    sqlite_autoincrement=True,
)

#: Roles that one instance at a time has, until its lease ends.
leases = Table(
    "leases",
    metadata,
    Column("role", String(64), primary_key=True),
    Column("holder", String(200), nullable=False),
    #: Grows with each new holder.
    Column("term", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
)
