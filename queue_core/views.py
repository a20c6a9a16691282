"""What a store looks like from outside: the columns of its metadata views. Needs no catalog.

Source: the counters and pointers are Magazine's (load and fire pointer, load and fire counter per
shard), the others IgnisMQ's queue statistics.
"""

import pyarrow as pa

from queue_core.failure_kinds import TOLD
from queue_core.schema import TIMESTAMP

_COUNTS = (
    "loaded",
    "fired",
    "reloaded",
    "deleted",
    "sidelined",
    "shovelled",
    "swept",
    "damaged",
    "expired",
    "ignored",
    "replaced",
    "dropped",
)

#: One row per queue.
QUEUES = pa.schema(
    [
        ("queue", pa.string()),
        ("shards", pa.int32()),
        ("key", pa.string()),
        ("columns", pa.string()),
        #: Waiting in main, in flight, and waiting in the sideline.
        ("waiting", pa.int64()),
        ("in_flight", pa.int64()),
        ("sidelined", pa.int64()),
        ("damaged", pa.int64()),
        ("bytes", pa.int64()),
        ("settings", pa.string()),
        ("created_at", TIMESTAMP),
        #: When it was given up; null while it is in use.
        ("deactivated_at", TIMESTAMP),
    ]
)

#: One row per queue, magazine and shard. Pointers are places; counts are messages, since ever.
SHARDS = pa.schema(
    [
        ("queue", pa.string()),
        ("magazine", pa.string()),
        ("shard", pa.int32()),
        ("load_pointer", pa.int64()),
        ("fire_pointer", pa.int64()),
        #: From where a sweep that was interrupted goes on.
        ("sweep_pointer", pa.int64()),
        *((name, pa.int64()) for name in _COUNTS),
        #: Messages that are there now.
        ("waiting", pa.int64()),
        ("in_flight", pa.int64()),
    ]
)

#: One row per slice: where its messages are and who holds them.
SLICES = pa.schema(
    [
        ("queue", pa.string()),
        ("magazine", pa.string()),
        ("shard", pa.int32()),
        ("position", pa.int64()),
        ("state", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("attempts", pa.int32()),
        ("deliveries", pa.int32()),
        #: When the oldest of its messages was loaded, and when they came into this magazine.
        ("loaded_at", TIMESTAMP),
        ("moved_at", TIMESTAMP),
        ("consumer", pa.string()),
        ("ticket", pa.int64()),
        ("fired_at", TIMESTAMP),
        #: The segment file, or null when the catalog holds the bytes.
        ("location", pa.string()),
        ("segment_id", pa.int64()),
    ]
)

#: One row per consumer that the store has seen.
CONSUMERS = pa.schema(
    [
        ("consumer", pa.string()),
        ("epoch", pa.int64()),
        ("last_ticket", pa.int64()),
        ("acknowledged", pa.int64()),
        ("in_flight", pa.int64()),
        #: The higher goes first; null: before all.
        ("priority", pa.int32()),
        #: The queues of which it would take messages now; null where it does not say.
        ("interested", pa.string()),
        #: Whether it shares its queues, or goes alone.
        ("claim", pa.string()),
        ("heartbeat_at", TIMESTAMP),
        ("created_at", TIMESTAMP),
    ]
)

#: One row per failure: a message can have several.
FAILURES = pa.schema([pa.field("queue", pa.string()), *TOLD])

#: What a side task tells of each shard in which it moved something.
MOVED = pa.schema(
    [
        ("shard", pa.int32()),
        ("moved", pa.int64()),
        ("from", pa.string()),
        #: Null for what is gone.
        ("to", pa.string()),
    ]
)

#: One row for each of them; a task of the store, and not of a queue, has neither queue nor shard.
REPORTS = pa.schema(
    [
        pa.field("task", pa.string()),
        pa.field("queue", pa.string()),
        *MOVED,
        pa.field("when", TIMESTAMP),
    ]
)

#: The schema of each view, by its name.
VIEWS = {
    "queues": QUEUES,
    "shards": SHARDS,
    "slices": SLICES,
    "consumers": CONSUMERS,
    "failures": FAILURES,
    "reports": REPORTS,
}
