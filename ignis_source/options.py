"""The options of the source."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from ignis_source.log_options import LOG_OPTIONS, LogOptions
from queue_core.errors import BadOption
from queue_core.handling.breaker import Breaker
from queue_core.upkeep.tasks.registry import REGISTRY, TASKS, check_task
from queue_core.values.address import Address
from queue_core.values.durations import parse_seconds
from queue_core.values.model import BY_SHARD, GLOBAL, Magazine
from queue_core.values.names import check_consumer, check_magazine, of_keeper
from queue_core.values.options import (
    CLIENT_ID,
    STORE,
    Option,
    boolean,
    by_field,
    is_set,
    one_of,
    parse,
    size,
    whole,
    words,
)
from queue_core.values.views import VIEWS

ALL, NONE = "all", "none"
#: The largest priority; the smallest is its negative.
LARGEST_PRIORITY = 1_000_000


def _tasks(text: str) -> tuple[str, ...]:
    """Parse task names, separated by commas, or `ALL`, or `NONE`."""
    said = text.strip().lower()
    if said in (ALL, NONE):
        return TASKS if said == ALL else ()
    return tuple(check_task(name.lower()) for name in words(text))


def _some_tasks(text: str) -> tuple[str, ...]:
    """Parse the same, without `NONE`."""
    tasks = _tasks(text)
    if not tasks:
        raise ValueError(f"any of {', '.join(TASKS)}, or {ALL}")
    return tasks


def _rate(text: str) -> float:
    """Parse a rate in messages per second."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise ValueError("messages a second, more than 0")
    return value


OPTIONS: tuple[Option, ...] = (
    *STORE,
    Option(
        "queue",
        "Queue to read. A name such as `orders_SIDELINE` reads the sideline of the queue `orders`, "
        "regardless of `magazine`.",
        check_magazine,
    ),
    Option(
        "queues",
        "Names of several queues with the same columns, separated by commas. Replaces `queue`. "
        "When one of them is deactivated, dropped or detached from its log, the query goes on with "
        "the others; leave it out when you start the query again.",
        words,
    ),
    Option(
        "consumer",
        "Name of the consumer. A query that restarts with the same name gets back the messages "
        "that it held, even without its checkpoint; then its last batch may come twice. Each "
        "source of a query needs a name of its own. By default, a new name, which the checkpoint "
        "keeps.",
        check_consumer,
    ),
    Option(
        "ack",
        "How messages are finished. `onCommit`: deleted when their batch is committed. `settle`: "
        "by a sink with `mode=settle`. `browse`: not at all, because the query takes no messages. "
        "`keep`: by a message that confirms them (policy `confirm`), as in `Queue.get_and_keep`; "
        "until then they are in flight, and no sweep takes them, even if the query ends. With "
        "one checkpoint, a query always has `keep`, or never.",
        one_of("onCommit", "settle", "browse", "keep"),
        "onCommit",
    ),
    Option(
        "sweepable",
        "Whether a sweep may take the messages of unfinished batches once the query is dead. If "
        "`false`, these messages wait until the query restarts with its checkpoint and reads them "
        "again; `ignis sweep QUEUE --consumer NAME` releases them without a restart. With `true`, "
        "a message that is swept before the restart may be handled twice. By default, `true` with "
        "`ack=settle`, otherwise `false`.",
        boolean,
    ),
    Option(
        "reset",
        "With `ack=keep`: whether a start of the query puts back all messages that it keeps, so "
        "that they are read again, the oldest of each shard first. While the query runs, "
        "`Queue.reset(consumer=…)` does so.",
        boolean,
        False,
    ),
    Option(
        "magazine",
        "Magazine to read: `main` or `sideline`.",
        one_of("main", "sideline"),
        "main",
    ),
    Option(
        "selector",
        "SQL condition over the queue's columns and the metadata columns. Without `task`, also "
        "the import path of a function or a `Predicate`, such as `shop.selectors:heavy`. Only "
        "matching messages are read. By default, all messages.",
    ),
    Option(
        "orderBy",
        "Order in which messages are chosen for a micro-batch, such as `priority DESC, size`. "
        "Within the batch, the rows of a shard stay in load order. By default, the oldest messages "
        "are chosen first. Not with `ack=browse`.",
    ),
    Option(
        "order",
        "Order in which messages are chosen without `orderBy`. `shard`: the oldest of each shard, "
        "evenly from all shards. `global`: by the time of loading over all shards, which takes "
        "longer. Within the batch, the rows of a shard stay in load order. By default, `shard`. "
        "Not with `ack=browse`.",
        one_of(BY_SHARD, GLOBAL),
    ),
    Option(
        "fallback",
        "What to read when no message matches the selector: `any` message, the oldest of each "
        "shard first (with `order=global`, the oldest of all shards), or `none`.",
        one_of("any", "none"),
        "none",
    ),
    Option(
        "maxMessagesPerTrigger",
        "The most messages in one micro-batch. By default, no limit.",
        whole(1),
    ),
    Option(
        "maxBytesPerTrigger",
        "The most bytes in one micro-batch, as uncompressed Arrow data, such as `64m`. By default, "
        "no limit. Not with `ack=browse`.",
        size,
    ),
    Option(
        "minMessagesPerTrigger",
        "The least messages that a micro-batch waits for, at most for `maxTriggerDelay`. All "
        "messages that wait in the queues count, and are counted once a second. Trigger."
        "AvailableNow does not wait. Needs Spark 4.2. Not with `ack=browse`. By default, a batch "
        "begins with the first message. Source: Kafka's source, `minOffsetsPerTrigger`.",
        whole(1),
    ),
    Option(
        "maxTriggerDelay",
        "With `minMessagesPerTrigger`, the longest time that messages wait for more to come. "
        "Source: Kafka's source, 15 minutes.",
        parse_seconds,
        900.0,
    ),
    Option(
        "priority",
        "Priority of this consumer, from -1000000 to 1000000. While a consumer with a higher "
        "priority wants messages of a queue, consumers with a lower priority get none. By default, "
        "the query has no priority: it does not wait for consumers with one, and they do not wait "
        "for it. Not with `ack=browse`.",
        whole(-LARGEST_PRIORITY, LARGEST_PRIORITY),
    ),
    Option(
        "maxInFlight",
        "The most unfinished messages that the query may hold. While it holds that many, consumers "
        "with a lower priority may fire. By default, no limit. Not with `ack=browse`.",
        whole(1),
    ),
    Option(
        "exclusive",
        "If `true`, only this consumer may fire from the queues. Refused while a pool, a target "
        "or another query with a priority or a claim is active; while this one is active, all "
        "others are refused. Not with `singleActive` or `ack=browse`.",
        boolean,
        False,
    ),
    Option(
        "singleActive",
        "If `true`, only one of the queries that set it is active; the others stand by, and one "
        "takes over when it stops. Not with `exclusive` or `ack=browse`.",
        boolean,
        False,
    ),
    Option(
        "breaker",
        "Circuit breaker, as the text of a `Breaker`: while it is open, no messages are read. "
        "`consume` sets it; a sink with `mode=settle` needs the same.",
        Breaker.parse,
    ),
    Option("includeMetadata", "Whether to read the metadata columns.", boolean, True),
    Option(
        "numPartitions",
        "The most partitions of a batch. The rows of a shard stay in one partition. By default, "
        "the queue's `concurrency`; of several queues, the largest one. With `task`, also the most "
        "partitions for one task of one queue.",
        whole(1),
    ),
    Option(
        "idleWait",
        "How long an idle query waits for messages before it returns to Spark.",
        parse_seconds,
        0.2,
    ),
    Option(
        "heartbeatInterval",
        "Time between two heartbeats of a running query, 0.1 to 20 seconds. Heartbeats keep its "
        "messages from being swept. With `priority`, `exclusive` or `singleActive`, ignis sends "
        "them more often.",
        parse_seconds,
        10.0,
    ),
    Option(
        "refreshInterval",
        "With `task`, the time between two searches for new queues and changed settings. A query "
        "that reads messages looks for changed settings every second, or more often if this time "
        "is shorter. Source: IgnisMQ, 5 minutes.",
        parse_seconds,
        300.0,
    ),
    Option(
        "tasks",
        "Side tasks that the query runs for its queues in the background, when they are due: "
        f"any of {', '.join(f'`{task}`' for task in TASKS)}, separated by commas, or `none`. "
        "By default, all of them; with `ack=browse`, none.",
        _tasks,
    ),
    Option(
        "task",
        "Side tasks, separated by commas, or `all`: the stream runs them instead of reading "
        "messages. A micro-batch does what is due, for the given queues or for all queues of the "
        "store, in tasks on the executors, which need the catalog too. Its rows report how many "
        "messages were moved. With Trigger.AvailableNow, each task runs once, due or not. With "
        "`selector`, `limit` or `rate`, the shovel moves what they choose at each `interval`, by "
        "default the queue's `shovel_interval`; otherwise each message when its time has come.",
        _some_tasks,
    ),
    Option(
        "deep",
        "With `task=fsck` or `task=all`, whether the check also reads all segments.",
        boolean,
        False,
    ),
    Option(
        "interval",
        "With `task`, the time between two runs. By default, the task's own interval.",
        parse_seconds,
    ),
    Option(
        "limit",
        "With `task=shovel` or `task=all`, the most messages that one shovel moves.",
        whole(1),
    ),
    Option(
        "rate",
        "With `task=shovel` or `task=all`, the most messages per second that a shovel moves. "
        "Without `limit`, a micro-batch moves those of at most three seconds, and the next one "
        "goes on; with Trigger.AvailableNow, a single one moves all. With `limit`, a single one "
        "does too, and what is due elsewhere waits for it.",
        _rate,
    ),
    Option(
        "zookeeper",
        "Servers of the ZooKeeper that elects the leader, as `host:port`, separated by commas. "
        "Only the leader sweeps. By default, a lease in the catalog elects the leader.",
    ),
    Option(
        "clientId",
        "With `zookeeper`, the name of the group of instances that elect one leader. Each store "
        "needs another name, since a leader sweeps its own store alone.",
        str,
        CLIENT_ID,
    ),
    Option(
        "view",
        "In a batch read, a metadata view of the store, such as `queues`, instead of messages.",
        one_of(*VIEWS),
    ),
    *LOG_OPTIONS,
)


class SourceOptions(NamedTuple):
    """The options of one `load()`, checked."""

    address: Address
    queues: tuple[str, ...]
    consumer: str | None
    ack: str
    sweepable: bool
    reset: bool
    magazine: Magazine
    selector: str | None
    order_by: str | None
    order: str
    fallback: bool
    max_messages: int | None
    max_bytes: int | None
    min_messages: int | None
    max_delay: float
    priority: int | None
    max_in_flight: int | None
    exclusive: bool
    single_active: bool
    breaker: Breaker | None
    include_metadata: bool
    partitions: int | None
    idle_wait: float
    heartbeat_interval: float
    refresh_interval: float
    #: Side tasks that the query runs, and whether it reads their reports.
    tasks: tuple[str, ...]
    reports: bool
    interval: float | None
    deep: bool
    limit: int | None
    rate: float | None
    zookeeper: str | None
    client_id: str
    view: str | None
    #: What to read of the queues' logs; None: what waits in the queues.
    log: LogOptions | None = None
    #: Whether the query wants all columns, since its reader has no schema of the user.
    all_columns: bool = False

    @staticmethod
    def of(given: Mapping[str, str]) -> SourceOptions:
        """Parse the options that Spark passes; raises `BadOption` or `BadName`."""
        values = parse(given, OPTIONS, "ignis source")
        address = Address.of(values["path"], catalog=values["catalog"], storage=values["storage"])
        names = _queues(values["queue"], values["queues"], values["view"] or values["task"])
        _check_task(values)
        _check_claim(values)
        _check_linger(values)
        sweepable = values["sweepable"]
        own = {
            "address": address,
            "queues": names,
            "consumer": _consumer(values),
            "sweepable": values["ack"] == "settle" if sweepable is None else sweepable,
            "magazine": Magazine[values["magazine"].upper()],
            "order": values["order"] or BY_SHARD,
            "fallback": values["fallback"] == "any",
            "max_messages": values["maxMessagesPerTrigger"],
            "max_bytes": values["maxBytesPerTrigger"],
            "min_messages": values["minMessagesPerTrigger"],
            "max_delay": values["maxTriggerDelay"],
            "partitions": values["numPartitions"],
            "tasks": _tasks_of(values),
            "reports": values["task"] is not None,
            "log": LogOptions.of(values, OPTIONS),
        }
        return SourceOptions(**{**by_field(values, SourceOptions._fields), **own})

    @property
    def is_ranked(self) -> bool:
        """Whether other consumers must know of this query, because one of them may go first."""
        return self.priority is not None or self.exclusive or self.single_active


def _check_claim(values: Mapping[str, Any]) -> None:
    if values["exclusive"] and values["singleActive"]:
        raise BadOption("ignis source: set exclusive or singleActive, not both")
    limits = ("maxInFlight", "minMessagesPerTrigger", "maxBytesPerTrigger")
    for name in ("priority", "exclusive", "singleActive", *limits):
        if values["ack"] == "browse" and is_set(values[name]):
            raise BadOption(
                f"ignis source: {name} cannot be set with ack=browse, which takes no messages; "
                "remove it"
            )


def _check_linger(values: Mapping[str, Any]) -> None:
    least = values["minMessagesPerTrigger"]
    for name in ("maxMessagesPerTrigger", "maxInFlight"):
        if None not in (least, values[name]) and values[name] < least:
            raise BadOption(
                f"ignis source: minMessagesPerTrigger={least} is more than {name}={values[name]}: "
                "lower it, or raise the other"
            )


def _consumer(values: Mapping[str, Any]) -> str | None:
    """Return the name of the consumer; that of a keeper shows that it keeps its messages."""
    name: str | None = values["consumer"]
    if values["ack"] == "keep":
        if values["sweepable"]:
            raise BadOption("ignis source: ack=keep keeps messages from sweeps: remove sweepable")
        return None if name is None else check_consumer(of_keeper(name))
    if values["reset"]:
        raise BadOption("ignis source: reset belongs to ack=keep: set that too, or remove reset")
    return name


def _tasks_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    if values["task"] is not None:
        named = values["queue"] or values["queues"]
        return tuple(task for task in values["task"] if not REGISTRY[task].of_store or not named)
    if values["tasks"] is not None:
        return tuple(values["tasks"])
    return () if values["ack"] == "browse" else TASKS


#: Options that have no meaning for a task.
_OF_MESSAGES = (
    "view",
    "consumer",
    "sweepable",
    "orderBy",
    "order",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "priority",
    "maxInFlight",
    "exclusive",
    "singleActive",
)


def _check_task(values: Mapping[str, Any]) -> None:
    tasks = values["task"]
    if tasks is None:
        for name in ("interval", "deep", "limit", "rate"):
            if is_set(values[name]):
                raise BadOption(
                    f'ignis source: {name} belongs to a task: set .option("task", …) too'
                )
        return
    given = "task=" + repr(ALL if tasks == TASKS else ",".join(tasks))
    for name in _OF_MESSAGES:
        if is_set(values[name]):
            raise BadOption(f"ignis source: {given} reads no messages: remove {name}")
    if all(REGISTRY[task].of_store for task in tasks) and (values["queue"] or values["queues"]):
        raise BadOption(f"ignis source: {given} runs on the whole store: remove the queue")
    for owner, names in (("shovel", ("selector", "limit", "rate")), ("fsck", ("deep",))):
        for name in names:
            if owner not in tasks and is_set(values[name]):
                raise BadOption(f"ignis source: {name} belongs to task={owner!r}, not to {given}")


def _queues(one: str | None, several: tuple[str, ...] | None, other: str | None) -> tuple[str, ...]:
    """Return the names of the queues; none are needed if something *other* is read."""
    if one and several:
        raise BadOption("ignis source: set queue or queues, not both")
    names = (one,) if one else several or ()
    if not names and other is None:
        raise BadOption('ignis source: name a queue: .option("queue", "orders")')
    for name in set(names):
        if names.count(name) > 1:
            raise BadOption(f"ignis source: queues names {name!r} more than once")
    return tuple(check_magazine(name) for name in names)
