"""`consume`: a streaming query that passes a queue's messages to a handler and settles them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ignis_sink.options import SinkOptions
from ignis_sink.output import find_output
from ignis_source.options import SourceOptions
from ignis_source.schema import look_up
from pyspark_ignis.query_plan import QueryPlan
from pyspark_ignis.settlement import Handler, settlement
from queue_core.errors import BadOption
from queue_core.handling.breaker import Breaker, name_for, text_of
from queue_core.handling.contract import Contract, Ignorable, MagazineHandler, check_columns
from queue_core.handling.output import Output
from queue_core.values.durations import Duration
from queue_core.values.model import Magazine
from queue_core.values.retry import Retry


def consume(
    spark: SparkSession,
    queue: str | Sequence[str],
    handler: Handler | MagazineHandler,
    *,
    checkpoint: str | Path,
    path: str | Path | None = None,
    catalog: str | None = None,
    storage: str | None = None,
    ignorable: Ignorable = (),
    handler_timeout: Duration | None = None,
    payload: str | None = None,
    payload_type: type | None = None,
    message_type: type | None = None,
    with_metadata: bool = False,
    on_none: str | None = None,
    retry: Retry | str | None = None,
    breaker: Breaker | None = None,
    output: str | None = None,
    columns: Sequence[str] | None = None,
    magazine: str = "main",
    max_messages: int | None = None,
    consumer: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    side_tasks: str = "thread",
    **options: Any,
) -> StreamingQuery:
    """
    Start a query that fires the messages of a queue, handles each one and settles it.

    There are three kinds of handlers, from the slowest to the fastest:

    - a function that takes one message as a dict of its columns and returns a bool;
    - a function marked by `batch_handler` that takes a RecordBatch and returns one result per
      message;
    - a boolean Column, which Spark evaluates without Python.

    True deletes the message. Any other result sidelines it, and the view ``failures`` shows the
    kind of failure: ``rejected`` for false; ``undecided`` for null or a value that is not a bool;
    ``exception``, with the reason ``ExceptionType: message``, if the handler raises; ``timeout`` if
    the call takes too long; and ``unreadable`` if the payload cannot be read. These outcomes come
    from IgnisMQ. Each firing of a message has exactly one outcome, and a message is handled again
    only after a crash, a sweep, a reload or a shovel. An expression that fails ends the query:
    write ``try_divide(a, b)``, which returns null, instead of ``a / b``.

    The query's progress counts the outcomes under ``observedMetrics["ignis"]``: ``deleted``,
    ``sidelined``, ``ignored`` and ``reloaded``.

    Args:
        spark: The Spark session.
        queue: The name of a queue, or of several queues with the same schema. A name such as
            ``orders_SIDELINE`` is that of the sideline, whatever *magazine* is.
        handler: The function, coroutine function or Column that handles the messages; or an object
            with a method ``handle`` (`MagazineHandler`).
        checkpoint: Folder of the query's checkpoint. Each query needs its own.
        path: Folder of an embedded store. Give either *path* or *catalog* and *storage*.
        catalog: Database URL of the catalog.
        storage: Folder or URI of the segment files.
        ignorable: As in `ConsumerPool`. Python handlers only.
        handler_timeout: As in `ConsumerPool`. Python handlers only.
        payload: As in `ConsumerPool`. Python handlers only.
        payload_type: As in `ConsumerPool`.
        message_type: As in `ConsumerPool`. Python handlers only.
        with_metadata: As in `ConsumerPool`.
        on_none: The outcome of a message when the handler returns None for it: ``delete`` or
            ``sideline``. By default, a handler whose first result in a task is None ends the query
            with `BadOutcome` after the micro-batch is settled: the message is sidelined as
            ``undecided``, and the others wait. A None after a decision only sidelines its message.
            Python handlers only.
        retry: Which failures are tried again, how often and when: a `Retry` or its text. With a
            handler in Python, it may name exception classes. By default, the queues' setting
            ``retry``.
        breaker: A `Breaker`: while too many calls of the handler fail, the query fires nothing but
            probes. Each task also stops by itself, and its other messages are reloaded. Queries and
            pools whose breakers have the same name share it. By default, none. Python handlers
            only.
        output: The name of a queue of the same store for the rows that the handler returns, as in
            `ConsumerPool`: they are loaded in the transaction that settles the micro-batch. While
            a bounded queue has no room, the commit waits as that of a sink does; a queue that
            refuses the rows ends the query. By default, handlers return only decisions. Python
            handlers only.
        columns: The columns that the handler gets. Other columns are not read. By default, the
            queue's own columns with ``_message_id``, ``_queue`` and ``_attempt``; with a payload or
            a *message_type*, only the object.
        magazine: ``main`` or ``sideline``.
        max_messages: At most this many messages in one micro-batch, 1 or more. By default, all
            waiting messages.
        consumer: The consumer's name. By default, `consumer_of` the checkpoint.
        trigger: One argument of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``,
            ``{"once": True}`` or ``{"processingTime": "5 seconds"}``.
        name: The query's name.
        side_tasks: Where the side tasks run. ``thread``: those of the query's queues, in a thread
            of its process. ``stream``: those of the whole store, in a second query, whose tasks
            run on the executors; it keeps its checkpoint within *checkpoint*, is shared with other
            queries of the session, and stops with the last of them. ``none``: nowhere.
        **options: More options of the source (docs/options.md).

    Returns:
        The running query.

    Raises:
        BadOption: An argument or option is unknown, contradictory or out of range, or the handler
            cannot be used or cannot take its arguments. This and the following errors are raised
            before the query starts.
        NoSuchStore: There is no store at that address.
        NoSuchQueue: The store has no queue of that name.
        SchemaMismatch: A column does not exist, the queues' schemas differ, or a queue does not fit
            *message_type*.
    """
    plan = QueryPlan.of(
        consume,
        queue,
        checkpoint,
        path=path,
        catalog=catalog,
        storage=storage,
        magazine=magazine,
        max_messages=max_messages,
        consumer=consumer,
        trigger=trigger,
        name=name,
        options=options,
    ).with_side_tasks(side_tasks)
    contract = Contract.of(
        handler,
        ignorable=ignorable,
        handler_timeout=handler_timeout,
        payload=payload,
        payload_type=payload_type,
        message_type=message_type,
        with_metadata=with_metadata,
        on_none=on_none,
        retry=retry,
        columns=columns,
    )
    if breaker is not None:
        names = [queue] if isinstance(queue, str) else queue
        plan.source["breaker"] = _breaker_text(breaker, names)
    read = SourceOptions.of(plan.source)
    located, queues, available = look_up(read)
    for each in queues:
        contract.check_class(each.name, each.schema)
    timeout = contract.timeout_for(queues)
    chosen = contract.read(available.names)
    check_columns(read.queues, available.names, chosen)
    messages = plan.messages(spark, chosen, available)
    settled = settlement(
        messages,
        replace(contract, columns=chosen),
        timeout,
        read.breaker,
        may_put_off=located.magazine is Magazine.MAIN,
        output=None if output is None else _output(plan.source, output),
    )
    return plan.start(spark, settled, contract.retry, output)


def _output(source: Mapping[str, str], name: str) -> Output:
    """Return the queue for the rows of a handler; raises `NoSuchQueue` and `BadOption`."""
    place = {key: source[key] for key in ("path", "catalog", "storage") if key in source}
    target = find_output(SinkOptions.of({**place, "queue": name, "mode": "settle", "output": name}))
    assert target is not None
    return Output(target.spec)


def _breaker_text(breaker: Any, queues: Sequence[str]) -> str:
    """Return the text form of a breaker with its name; raises `BadOption`."""
    if not isinstance(breaker, Breaker):
        raise BadOption(f"breaker={breaker!r}: give a Breaker, such as Breaker(of=50)")
    return text_of(replace(breaker, name=breaker.name or name_for(queues)))
