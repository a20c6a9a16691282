"""`consume_many`: one streaming query for many queues, each of which has a handler of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ignis_source.options import SourceOptions
from ignis_source.schema import look_up
from pyspark_ignis.managed_query import Assignment, consume_arguments
from pyspark_ignis.query_plan import QueryPlan
from pyspark_ignis.settlement import runner_of, settled_by_python
from queue_core.errors import BadOption
from queue_core.handling.contract import Contract, check_columns
from queue_core.handling.handler import QUEUE, HandlerRunner, RunnerByQueue
from queue_core.values.model import QueueInfo
from queue_core.values.names import nearest

#: The arguments of `consume` that each queue of one query can have for itself.
OWN_ARGUMENTS = (
    "handler",
    "ignorable",
    "handler_timeout",
    "payload",
    "payload_type",
    "message_type",
    "with_metadata",
    "on_none",
    "columns",
)


def consume_many(
    spark: SparkSession,
    handlers: Mapping[str, Assignment],
    *,
    checkpoint: str | Path,
    path: str | Path | None = None,
    catalog: str | None = None,
    storage: str | None = None,
    max_messages: int | None = None,
    consumer: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    side_tasks: str = "thread",
    **options: Any,
) -> StreamingQuery:
    """
    Start one query for many queues with the same columns, each with a handler of its own.

    A query costs a Python process of about 100 MB and some transactions a second, so a thousand
    queues are better served by one. Handlers and outcomes are those of `consume`. A micro-batch
    takes messages evenly from all queues that have some, and the next one begins where it ended.
    With *max_messages*, a queue with a million messages does not delay those of the others, and
    the queues' setting ``weight`` gives some of them a larger part than others.

    The queues share the query: a micro-batch ends when all its messages are handled, so a slow
    handler delays the other queues. Give such a queue a query of its own, by `consume`. The same
    holds for a queue whose handler is a Column, or has a breaker or a retry policy of its own;
    here, the queues' setting ``retry`` counts. When a queue is deactivated, dropped or detached
    from its log, the query goes on with the others.

    Args:
        spark: The Spark session.
        handlers: For each queue name, a function of one message or one marked by `batch_handler`,
            an object with a method ``handle``, or a dict that includes ``handler`` and, for this
            queue, arguments of `consume`: ``ignorable``, ``handler_timeout``, ``payload``,
            ``payload_type``, ``message_type``, ``with_metadata``, ``on_none`` and ``columns``. By
            default, a handler that returns None does not end the query, as it would with
            `consume`, because the other queues need it: ``on_none`` is ``sideline``.
        checkpoint: Folder of the query's checkpoint. Later runs may have other queues.
        path: Folder of an embedded store. Give either *path* or *catalog* and *storage*.
        catalog: Database URL of the catalog.
        storage: Folder or URI of the segment files.
        max_messages: At most this many messages of all queues in one micro-batch, 1 or more. By
            default, all waiting messages.
        consumer: The consumer's name. By default, `consumer_of` the checkpoint.
        trigger: One argument of ``DataStreamWriter.trigger``, as for `consume`.
        name: The query's name.
        side_tasks: Where the side tasks run, as for `consume`.
        **options: More options of the source (docs/options.md).

    Returns:
        The running query.

    Raises:
        BadOption: An argument or option is unknown, contradictory or out of range, the queues have
            different columns, or a handler cannot be used or cannot take its arguments. This and
            the following errors are raised before the query starts.
        BadName: The name of a queue is not allowed.
        NoSuchStore: There is no store at that address.
        NoSuchQueue: The store has no queue of one of the names.
        SchemaMismatch: A column does not exist, or a queue does not fit its ``message_type``.
    """
    assigned = own_arguments(handlers)
    plan = QueryPlan.of(
        consume_many,
        list(assigned),
        checkpoint,
        path=path,
        catalog=catalog,
        storage=storage,
        max_messages=max_messages,
        consumer=consumer,
        trigger=trigger,
        name=name,
        options=options,
    ).with_side_tasks(side_tasks)
    read = SourceOptions.of(plan.source)
    _, queues, available = look_up(read)
    runners = {queue.name: _runner(queue, available, assigned[queue.name]) for queue in queues}
    read_by = (each.contract.columns or () for each in runners.values())
    wanted = {QUEUE}.union(*read_by)
    messages = plan.messages(spark, [n for n in available.names if n in wanted], available)
    return plan.start(spark, settled_by_python(messages, RunnerByQueue(runners)))


def own_arguments(handlers: Mapping[str, Assignment]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each queue; raises `BadName` and `BadOption`."""
    if not isinstance(handlers, Mapping) or not handlers:
        raise BadOption(f"handlers={handlers!r}: give a dict of a handler for each queue name")
    assigned = consume_arguments(handlers)
    for queue, given in assigned.items():
        why = why_apart(given)
        if why is not None:
            raise BadOption(
                f"handlers[{queue!r}]: {why}; give this queue a query of its own, by consume()"
            )
    return assigned


def why_apart(given: Mapping[str, Any]) -> str | None:
    """Return why a queue with these arguments cannot share a query; None if it can."""
    if isinstance(given["handler"], Column):
        return "its handler is a Column, which would see the messages of all queues"
    for argument in given:
        if argument not in OWN_ARGUMENTS:
            return f"{argument!r} is for a whole query{nearest(argument, OWN_ARGUMENTS)}"
    return None


def _runner(queue: QueueInfo, available: StructType, own: Mapping[str, Any]) -> HandlerRunner:
    """Return what runs the handler of a queue; raises `BadOption` and `SchemaMismatch`."""
    contract = Contract.of(**{"on_none": "sideline", **own})
    given = contract.read(available.names)
    check_columns([queue.name], available.names, given)
    contract.check_class(queue.name, queue.schema)
    contract = replace(contract, columns=given)
    return runner_of(contract, contract.timeout_for([queue]), available)
