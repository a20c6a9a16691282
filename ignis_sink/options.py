"""Every option of the sink, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from queue_core.address import Address
from queue_core.errors import BadOption
from queue_core.names import check_consumer, check_queue
from queue_core.options import (
    STORE,
    Option,
    boolean,
    one_of,
    parse,
    seconds,
    size,
    whole,
    words,
)
from queue_core.settings import DEFAULT_SHARDS, MAX_SHARDS, OVERFLOWS, QueueSettings

OPTIONS: tuple[Option, ...] = (
    *STORE,
    Option("queue", "Queue to write; `load` creates it if it is new.", check_queue),
    Option(
        "queues",
        "In `settle`, the several queues of a source with `queues`, with commas between them.",
        words,
    ),
    Option(
        "mode",
        "`load` publishes the rows; `settle` gives each message the outcome that its row names.",
        one_of("load", "settle"),
        "load",
    ),
    Option(
        "key",
        "Column whose hash picks the shard: rows of one key stay in order. Without it, each "
        "task's rows go to one shard, in turn. An existing queue keeps its own.",
    ),
    Option("shards", "Shards of a queue that is created.", whole(1, MAX_SHARDS), DEFAULT_SHARDS),
    Option("maxSize", "Messages that a queue that is created holds at most.", whole(1)),
    Option("maxBytes", "Bytes that a queue that is created holds at most.", size),
    Option(
        "onFull",
        "What a bounded queue without room does to a batch: `block`: the commit waits; `fail`; "
        "`ring`: the oldest messages that wait are dropped. Unless given, as the queue's "
        "`overflow` says.",
        one_of(*OVERFLOWS),
    ),
    Option(
        "timeout",
        "For how long a commit waits for room in a bounded queue. Then the query fails; the batch "
        "is loaded when it is started again.",
        seconds,
        600.0,
    ),
    Option(
        "mergeSchema",
        "Whether columns that the queue lacks are added to it; they must be nullable.",
        boolean,
        False,
    ),
    Option(
        "policy",
        "In `load`, what rows do to queued messages of their key, and these to them, such as "
        "`latest`; needs a key. Without it, what the queue's setting says.",
    ),
    Option(
        "dedup",
        "In `load`, columns, with commas between them, by which a message is known again, and left "
        "out. Without it, what the queue's setting says.",
        words,
    ),
    Option(
        "dedupWindow",
        "For how long a message is known. Without it, what the queue's setting says.",
        seconds,
    ),
    Option("ttl", "For how long messages of a queue that is created are wanted.", seconds),
    Option(
        "expiresAt",
        "Column of a queue that is created that says until when a message is wanted. Without it, "
        "`_expires_at`, if there is one.",
    ),
    Option(
        "holdUntil",
        "Column of a queue that is created that says from when on a message may be fired. Without "
        "it, `_hold_until`, if there is one.",
    ),
    Option(
        "priority",
        "Column of a queue that is created of which the greatest value is fired first. Without it, "
        "the oldest message is.",
    ),
    Option(
        "groupBy",
        "Column of a queue that is created of whose messages with one value at most one is in "
        "flight, in order of loading. It is the queue's key.",
    ),
    Option(
        "consumer",
        "In `settle`, the consumer of the source: only what it still holds is touched.",
        check_consumer,
    ),
)

#: Options that are settings of the queue.
SETTINGS = {
    "maxSize": "max_size",
    "maxBytes": "max_bytes",
    "ttl": "message_expiry",
    "expiresAt": "expires_at",
    "holdUntil": "hold_until",
    "priority": "priority",
    "groupBy": "group",
}

# What Spark hands over besides: its own options, which are not ours to check.
_SPARKS_OWN = ("checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one write, checked."""

    address: Address
    queues: tuple[str, ...]
    mode: str
    key: str | None
    shards: int
    merge_schema: bool
    consumer: str | None
    on_full: str | None = None
    timeout: float = 600.0
    policy: str | None = None
    dedup: tuple[str, ...] | None = None
    dedup_window: float | None = None
    #: The checkpoint of a streaming query, where Spark passes it on.
    checkpoint: str | None = None
    #: What a queue that is created is set to; one that is there must be so already.
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def queue(self) -> str:
        """The queue that is loaded."""
        return self.queues[0]

    def applied_to(self, settings: QueueSettings) -> QueueSettings:
        """Return the settings of a queue with those that this write overrides."""
        given = {
            "policy": self.policy,
            "dedup": self.dedup,
            "dedup_window": self.dedup_window,
        }
        return settings.changed({name: value for name, value in given.items() if value is not None})

    @staticmethod
    def of(given: Mapping[str, str]) -> SinkOptions:
        """Parse the options that Spark hands over; raises `BadOption` or `BadName`."""
        ours = {name: text for name, text in given.items() if name.lower() not in _SPARKS_OWN}
        values = parse(ours, OPTIONS, "ignis sink")
        queues = (values["queue"],) if values["queue"] else values["queues"] or ()
        if not queues or (values["queue"] and values["queues"]):
            raise BadOption('ignis sink: which queue? give one .option("queue", "orders")')
        if len(queues) > 1 and values["mode"] == "load":
            raise BadOption("ignis sink: mode=load writes one queue; give queue, not queues")
        return SinkOptions(
            address=Address.of(
                values["path"], catalog=values["catalog"], storage=values["storage"]
            ),
            queues=tuple(check_queue(name) for name in queues),
            mode=values["mode"],
            key=values["key"],
            shards=values["shards"],
            merge_schema=values["mergeSchema"],
            consumer=values["consumer"],
            policy=values["policy"],
            dedup=values["dedup"],
            dedup_window=values["dedupWindow"],
            on_full=values["onFull"],
            timeout=values["timeout"],
            checkpoint=next(
                (text for name, text in given.items() if name.lower() == "checkpointlocation"), None
            ),
            settings={
                setting: values[option]
                for option, setting in SETTINGS.items()
                if values[option] is not None
            },
        )
