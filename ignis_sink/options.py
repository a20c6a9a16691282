"""The options of the sink."""

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
    Option("queue", "Queue to write. In `load`, it is created if it does not exist.", check_queue),
    Option(
        "queues",
        "In `settle`, the queues of a source with `queues`, separated by commas.",
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
    Option(
        "maxSize", "The most messages of a queue that is created. Without it, no limit.", whole(1)
    ),
    Option("maxBytes", "The most bytes of a queue that is created. Without it, no limit.", size),
    Option(
        "onFull",
        "What happens to a batch when a bounded queue is full. `block`: the commit waits. `fail`: "
        "the query fails. `ring`: the oldest waiting messages are dropped. Without it, the queue's "
        "setting `overflow`.",
        one_of(*OVERFLOWS),
    ),
    Option(
        "timeout",
        "How long a commit waits for room in a bounded queue. Then the query fails; its batch is "
        "loaded when the query is restarted.",
        seconds,
        600.0,
    ),
    Option(
        "mergeSchema",
        "Whether to add columns that the queue lacks; they must be nullable.",
        boolean,
        False,
    ),
    Option(
        "policy",
        "In `load`, the policy by which rows meet queued messages of their key, such as `latest`. "
        "It needs a key. Without it, the queue's setting.",
    ),
    Option(
        "dedup",
        "In `load`, columns, separated by commas: rows that repeat a known message in all of them "
        "are not loaded. Without it, the queue's setting.",
        words,
    ),
    Option(
        "dedupWindow",
        "How long `dedup` remembers a message. Without it, the queue's setting.",
        seconds,
    ),
    Option("ttl", "Time after which messages of a queue that is created expire.", seconds),
    Option(
        "expiresAt",
        "Column of a queue that is created with the time at which a message expires. Without it, "
        "`_expires_at`, if there is one.",
    ),
    Option(
        "holdUntil",
        "Column of a queue that is created with the time from which a message may be fired. "
        "Without it, `_hold_until`, if there is one.",
    ),
    Option(
        "priority",
        "Column of a queue that is created: messages with the greatest value are fired first. "
        "Without it, the oldest message is.",
    ),
    Option(
        "groupBy",
        "Column of a queue that is created: of the messages with the same value, one at a time is "
        "in flight, in load order. It is the queue's key.",
    ),
    Option(
        "consumer",
        "In `settle`, the consumer of the source: only messages that it still holds are settled.",
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

# Spark also passes its own options, which are not ours to check.
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
    #: Settings of a queue that is created; an existing queue must have them already.
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def queue(self) -> str:
        """The queue to load."""
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
        """Parse the options that Spark passes; raises `BadOption` or `BadName`."""
        ours = {name: text for name, text in given.items() if name.lower() not in _SPARKS_OWN}
        values = parse(ours, OPTIONS, "ignis sink")
        queues = (values["queue"],) if values["queue"] else values["queues"] or ()
        if not queues or (values["queue"] and values["queues"]):
            raise BadOption(
                'ignis sink: set queue or queues, not both, as in .option("queue", "orders")'
            )
        if len(queues) > 1 and values["mode"] == "load":
            raise BadOption("ignis sink: mode=load writes one queue: set queue, not queues")
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
