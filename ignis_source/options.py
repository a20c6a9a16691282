"""Every option of the source, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queue_core.address import Address
from queue_core.errors import BadOption
from queue_core.model import Magazine
from queue_core.names import check_consumer, check_queue
from queue_core.options import STORE, Option, boolean, one_of, parse, seconds, size, whole, words
from queue_core.views import VIEWS

OPTIONS: tuple[Option, ...] = (
    *STORE,
    Option("queue", "Queue to read.", check_queue),
    Option("queues", "Several queues of one schema to read, with commas between them.", words),
    Option(
        "consumer",
        "Name of the consumer. A query that is started again under the same name finds what it "
        "held, even without its checkpoint. Without it, a name that the checkpoint keeps.",
        check_consumer,
    ),
    Option(
        "ack",
        "When messages are done with: `onCommit` deletes them once their batch is committed; "
        "`settle` leaves that to a sink with `mode=settle`; `browse` takes none.",
        one_of("onCommit", "settle", "browse"),
        "onCommit",
    ),
    Option(
        "magazine",
        "Magazine to read: `main` or `sideline`.",
        one_of("main", "sideline"),
        "main",
    ),
    Option(
        "selector",
        "SQL condition over the queue's columns and the metadata columns: only messages that meet "
        "it are read.",
    ),
    Option(
        "orderBy",
        "Which messages a micro-batch takes first: `priority DESC, size`. The rows of a shard stay "
        "in load order within the batch.",
    ),
    Option("maxMessagesPerTrigger", "Messages of one micro-batch at most.", whole(1)),
    Option("maxBytesPerTrigger", "Bytes of one micro-batch at most: `64m`.", size),
    Option("includeMetadata", "Whether the metadata columns are read.", boolean, True),
    Option(
        "numPartitions",
        "Partitions of a batch at most; the rows of a shard stay in one. Without it, the queue's "
        "`concurrency`.",
        whole(1),
    ),
    Option(
        "idleWait",
        "How long an idle query waits for a message before it answers Spark.",
        seconds,
        0.2,
    ),
    Option(
        "heartbeatInterval",
        "How often a running query says that it lives, which keeps its messages from being swept.",
        seconds,
        10.0,
    ),
    Option(
        "view",
        "In a batch read, a table about the store instead of messages.",
        one_of(*VIEWS),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one `load()`, checked."""

    address: Address
    queues: tuple[str, ...]
    consumer: str | None
    ack: str
    magazine: Magazine
    selector: str | None
    order_by: str | None
    max_messages: int | None
    max_bytes: int | None
    include_metadata: bool
    partitions: int | None
    idle_wait: float
    heartbeat_interval: float
    view: str | None

    @staticmethod
    def of(given: Mapping[str, str]) -> SourceOptions:
        """Parse the options that Spark hands over; raises `BadOption` or `BadName`."""
        values = parse(given, OPTIONS, "ignis source")
        address = Address.of(values["path"], catalog=values["catalog"], storage=values["storage"])
        names = _queues(values["queue"], values["queues"], values["view"])
        return SourceOptions(
            address=address,
            queues=names,
            consumer=values["consumer"],
            ack=values["ack"],
            magazine=Magazine[values["magazine"].upper()],
            selector=values["selector"],
            order_by=values["orderBy"],
            max_messages=values["maxMessagesPerTrigger"],
            max_bytes=values["maxBytesPerTrigger"],
            include_metadata=values["includeMetadata"],
            partitions=values["numPartitions"],
            idle_wait=values["idleWait"],
            heartbeat_interval=values["heartbeatInterval"],
            view=values["view"],
        )


def _queues(one: str | None, several: tuple[str, ...] | None, view: str | None) -> tuple[str, ...]:
    if one and several:
        raise BadOption("ignis source: give either queue or queues, not both")
    names = (one,) if one else several or ()
    if not names and view is None:
        raise BadOption('ignis source: which queue? give .option("queue", "orders")')
    return tuple(check_queue(name) for name in names)
