"""`consume`: a streaming query that handles a queue's messages and settles each of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ignis_source.options import SourceOptions
from ignis_source.queue_refresh import open_queues
from ignis_source.schema import source_schema
from pyspark_ignis.settlement import Handler, settlement
from queue_core.errors import BadOption
from queue_core.handlers.columns import check_columns, handler_columns
from queue_core.handlers.contract import Contract, Ignorable
from queue_core.handlers.payloads import Payload
from queue_core.names import nearest
from queue_core.store import Store

_TRIGGERS = ("availableNow", "once", "processingTime")
#: What the sink has to know as the source does.
_SHARED = ("path", "catalog", "storage", "queue", "queues", "consumer")
#: Options of the source that have an argument here, or are not for the user to choose.
_TAKEN = ("ack", "view", "task", "magazine", "maxMessagesPerTrigger", *_SHARED)


def consume(
    spark: SparkSession,
    queue: str | Sequence[str],
    handler: Handler,
    *,
    checkpoint: str | Path,
    path: str | Path | None = None,
    catalog: str | None = None,
    storage: str | None = None,
    ignorable: Ignorable = (),
    handler_timeout: float | None = None,
    payload: str | None = None,
    payload_type: type | None = None,
    with_metadata: bool = False,
    columns: Sequence[str] | None = None,
    magazine: str = "main",
    max_messages: int | None = None,
    consumer: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    **options: Any,
) -> StreamingQuery:
    """
    Start a query that fires the messages of *queue*, hands each to *handler*, and settles it.

    *handler* is one of three, each faster than the one before:

    - a function of one message, given as a dict of its columns, that returns a bool;
    - a function of a RecordBatch, marked by `batch_handler`, that returns a verdict per message;
    - a boolean Column, evaluated without any Python.

    True deletes the message. Everything else sidelines it, and the view ``failures`` tells why: its
    kind is ``rejected`` for false, ``undecided`` for null or what is no bool, ``exception`` with
    the reason ``ExceptionType: message``, and ``timeout`` for a call of more than *handler_timeout*
    seconds. That is, unless said, the queue's setting ``handler_timeout``, and at most half of its
    ``sweep_after``. An exception of an *ignorable* class, or of a subclass, deletes the message. A
    message is handled again only after a crash, a sweep, a reload or a shovel; each firing of it
    has one outcome. An expression that fails ends the query, so write ``try_divide(a, b)``, which
    gives null, instead of ``a / b``.

    Where the messages are JSON, *payload* names the column with the text. The handler is then given
    the object instead of the row: dicts and lists, or an instance of *payload_type*, which is a
    dataclass (see `queue_core.handlers.payload_types`) or a pydantic model. *with_metadata* gives
    it the other columns too, as a dict and second argument. A batch handler is given lists of both.
    What cannot be read is sidelined as ``unreadable``, and does not reach the handler.

    *path* is an embedded store's folder; *catalog* and *storage* name any other store. *queue* may
    be several queues of one schema. *columns* are what the handler is given, and all that is read;
    unless said, the queue's own and `DEFAULT_METADATA`, or the payload alone. *max_messages* bounds
    a micro-batch. *consumer* is, unless said, `consumer_of` the checkpoint. *trigger* holds the
    argument of ``DataStreamWriter.trigger``, as ``{"availableNow": True}``; *name* is the query's
    name; *options* are further options of the source.

    The query's progress counts the outcomes, under ``observedMetrics["ignis"]``: ``deleted``,
    ``sidelined``, ``ignored`` and ``reloaded``.

    Raises `BadOption`, `NoSuchStore`, `NoSuchQueue` or `SchemaMismatch`; nothing was started then.
    """
    folder = _absolute(checkpoint)
    several = not isinstance(queue, str)
    given = _allowed(options) | {
        "path": None if path is None else str(path),
        "catalog": catalog,
        "storage": storage,
        "queues" if several else "queue": ",".join(queue) if several else queue,
        "magazine": magazine,
        "maxMessagesPerTrigger": max_messages,
        "consumer": consumer or consumer_of(folder),
        "ack": "settle",
    }
    source = {key: _text(value) for key, value in given.items() if value is not None}
    start = _checked(trigger)
    contract = Contract.of(ignorable, handler_timeout, payload, payload_type, with_metadata)
    read = SourceOptions.of(source)
    timeout, schema = _timeout(read, contract), _schema(read, columns, contract.payload)

    messages = spark.readStream.format("ignis").options(**source).schema(schema).load()
    settled = settlement(messages, handler, contract, timeout)
    shared = {key: source[key] for key in _SHARED if key in source}
    writer = settled.writeStream.format("ignis").options(mode="settle", **shared)
    writer = writer.option("checkpointLocation", folder)
    if start:
        writer = writer.trigger(**start)
    if name is not None:
        writer = writer.queryName(name)
    _activate(spark)
    return writer.start()


def consumer_of(checkpoint: str | Path) -> str:
    """
    The consumer that a query with this checkpoint is, now and when it is started again.

    Its name comes from the checkpoint's place. A checkpoint that is moved keeps the consumer that
    it began with: find it in the view ``consumers``, and give it as ``consumer=``.
    """
    folder = _absolute(checkpoint)
    return f"consume:{hashlib.sha256(folder.encode()).hexdigest()[:16]}"


def _absolute(checkpoint: str | Path) -> str:
    if not str(checkpoint):
        raise BadOption("checkpoint: give a folder, in which the query keeps how far it has come")
    text = str(checkpoint)
    if not urlsplit(text).scheme:
        return os.path.abspath(text)
    return text.rstrip("/")


def _allowed(options: Mapping[str, Any]) -> dict[str, Any]:
    taken = {option.lower() for option in _TAKEN}
    for option in options:
        if option.lower() in taken:
            raise BadOption(f"consume: {option} is no further option; see the arguments of consume")
    return dict(options)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked(trigger: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(trigger or {})
    if len(given) > 1:
        raise BadOption(f"trigger={given!r}: give one of {', '.join(_TRIGGERS)}")
    for kind in given:
        if kind not in _TRIGGERS:
            raise BadOption(
                f"trigger={given!r}: use one of {', '.join(_TRIGGERS)}{nearest(kind, _TRIGGERS)}"
            )
    return given


def _activate(spark: SparkSession) -> None:
    """
    Make a session the active one of this thread, as it is once it has made a DataFrame.

    Spark looks there for formats that are written in Python, and a new thread has none.
    """
    spark.createDataFrame([], "nothing INT")


def _timeout(options: SourceOptions, contract: Contract) -> float:
    """Seconds that a call of the handler may take."""
    with Store(options.address, create=False) as store:
        return contract.timeout_for(open_queues(store, options.queues))


def _schema(
    options: SourceOptions, columns: Sequence[str] | None, payload: Payload | None
) -> StructType:
    """Return the columns to read: those that the handler is given, and the message's id."""
    available = source_schema(options)
    read = handler_columns(available.names, columns, payload)
    check_columns(", ".join(options.queues), available.names, read)
    return StructType([available[column] for column in read])
