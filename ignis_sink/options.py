"""The options of the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from queue_core.errors import BadOption
from queue_core.handling.breaker import Breaker
from queue_core.values.address import Address
from queue_core.values.durations import parse_seconds
from queue_core.values.names import check_consumer, check_queue
from queue_core.values.options import STORE, Option, boolean, one_of, parse, size, whole, words
from queue_core.values.retry import Retry
from queue_core.values.settings import (
    DEFAULT_SHARDS,
    MAX_CONCURRENCY,
    MAX_SHARDS,
    OVERFLOWS,
    ROOMS,
    QueueSettings,
)

#: Settings of a new queue that have options of the same names, and how their texts are read.
_OF_NEW: dict[str, Callable[[str], Any]] = {
    "attributes": words,
    "categories": words,
    "priority_aging": parse_seconds,
    "room": one_of(*ROOMS),
    "concurrency": whole(0, MAX_CONCURRENCY),
    "sweep_after": parse_seconds,
}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


OPTIONS: tuple[Option, ...] = (
    *STORE,
    Option(
        "queue",
        "Queue to write. With `mode=load`, a batch write and the first batch of a streaming query "
        "create it if it does not exist.",
        check_queue,
    ),
    Option(
        "queues",
        "With `mode=settle`, the `queues` of the source, separated by commas. A name such as "
        "`orders_SIDELINE` settles messages of the queue `orders`, here and in `queue`.",
        words,
    ),
    Option(
        "mode",
        "`load`: each row becomes a message. `settle`: each row names a fired message and its "
        "outcome.",
        one_of("load", "settle"),
        "load",
    ),
    Option(
        "key",
        "Column whose hash picks the shard, so that rows with the same key stay in order. By "
        "default, all rows of a task go to one shard, and tasks take the shards in turn. An "
        "existing queue keeps its key.",
    ),
    Option(
        "shards",
        "For a new queue: the number of shards, 1 to 512. First in, first out holds within each "
        "shard; with 1, for the whole queue.",
        whole(1, MAX_SHARDS),
        DEFAULT_SHARDS,
    ),
    Option(
        "maxSize",
        "For a new queue: the most messages it holds. By default, no limit. Not 0: the commit of a "
        "batch cannot wait until its messages are fired, so a rendezvous is loaded from Python.",
        whole(1),
    ),
    Option("maxBytes", "For a new queue: the most bytes it holds. By default, no limit.", size),
    Option(
        "onFull",
        "What happens to a batch when a bounded queue is full. `block`: the commit waits. `fail`: "
        "the query fails. `ring`: the oldest waiting messages are dropped. By default, the queue's "
        "setting `overflow`.",
        one_of(*OVERFLOWS),
    ),
    Option(
        "timeout",
        "How long a commit waits for room in a bounded queue. Then the query fails; after a "
        "restart, it loads the batch.",
        parse_seconds,
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
        "With `mode=load`, the policy that decides about rows and queued messages with the same "
        "key, such as `latest`. The queue needs a key. By default, the queue's setting `policy`. A "
        "new queue gets it as its setting.",
    ),
    Option(
        "dedup",
        "With `mode=load`, columns that identify a message, separated by commas. A row is left out "
        "if its values in these columns were loaded before. By default, the queue's setting "
        "`dedup`.",
        words,
    ),
    Option(
        "dedupWindow",
        "How long `dedup` remembers a message. By default, the queue's setting `dedup_window`.",
        parse_seconds,
    ),
    Option("ttl", "For a new queue: the time after which its messages expire.", parse_seconds),
    Option(
        "expiresAt",
        "For a new queue: the timestamp column that holds the time at which a message expires. By "
        "default, the column `_expires_at`, if the rows have it.",
    ),
    Option(
        "holdUntil",
        "For a new queue: the timestamp column that holds the time before which a message is not "
        "fired. By default, the column `_hold_until`, if the rows have it.",
    ),
    Option(
        "priority",
        "For a new queue: the numeric column that ranks messages. The message with the greatest "
        "value is fired first. By default, the oldest message is fired first.",
    ),
    Option(
        "groupBy",
        "For a new queue: the key column, which makes each key a group. At most one message of a "
        "group is in flight, and the messages of a group are fired in load order.",
    ),
    Option(
        "fairBy",
        "For a new queue: the column whose values take turns, such as the tenant. By default, the "
        "oldest message is fired first.",
    ),
    *(
        Option(_camel(name), f"For a new queue: its setting `{name}`.", read)
        for name, read in _OF_NEW.items()
    ),
    Option(
        "consumer",
        "With `mode=settle`, the source's `consumer`. Only messages that it still holds are "
        "settled.",
        check_consumer,
    ),
    Option(
        "retry",
        "With `mode=settle`, the policy for sidelined messages, such as `Retry(attempts=5, "
        "backoff=exponential(1))`. By default, the queue's setting `retry`. With `mode=load`, that "
        "setting of a new queue.",
        Retry.parse,
    ),
    Option(
        "breaker",
        "With `mode=settle`, the source's `breaker`, which settlements open and close. Each row "
        "counts as a call, except reloaded ones, and has failed if it is sidelined with the `kind` "
        "`exception` or `timeout`.",
        Breaker.parse,
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
    "fairBy": "fair_by",
    "retry": "retry",
    **{_camel(name): name for name in _OF_NEW},
}

# Spark also passes its own options, which this module does not check.
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
    breaker: Breaker | None = None
    on_full: str | None = None
    timeout: float = 600.0
    policy: str | None = None
    dedup: tuple[str, ...] | None = None
    dedup_window: float | None = None
    #: The policy of a settlement; None: the queues' own.
    retry: Retry | None = None
    #: The checkpoint of a streaming query, where Spark passes it on.
    checkpoint: str | None = None
    #: Settings of a queue that is created; an existing queue must have them already.
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def queue(self) -> str:
        """The queue to load."""
        return self.queues[0]

    @property
    def of_new_queue(self) -> dict[str, Any]:
        """The settings of a queue that is created."""
        return {**self.settings, **({} if self.policy is None else {"policy": self.policy})}

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
            breaker=values["breaker"],
            policy=values["policy"],
            dedup=values["dedup"],
            dedup_window=values["dedupWindow"],
            retry=values["retry"],
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
