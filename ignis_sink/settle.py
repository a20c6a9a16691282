"""
Settle: tasks reduce their rows to bitmaps; the commit settles them in one transaction.

Before the commit, nothing is changed. So there is nothing to abort.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from ignis_sink.arrow_streams import DataSourceStreamArrowWriter
from ignis_sink.message import SettleMessage, Target, current_batch, current_query, read_entry
from ignis_sink.options import SinkOptions
from queue_core.errors import BadOption, BadOutcome, NoSuchQueue
from queue_core.handling.breaker import Breaker, name_for
from queue_core.handling.breaker_state import PROBING
from queue_core.handling.gate import Tally, Window
from queue_core.handling.output import OUTPUT
from queue_core.handling.results import REFUSAL, refusal
from queue_core.handling.took import TOOK, read
from queue_core.segments.row_digest import digest_of_ids
from queue_core.support import faults
from queue_core.support.brief_errors import briefly
from queue_core.support.collector import pass_over_imports
from queue_core.values.model import Batch, QueueInfo
from queue_core.values.names import listed, nearest
from queue_core.values.outcomes import Settlement

if TYPE_CHECKING:
    from queue_core.catalog.database import Catalog

_log = logging.getLogger(__name__)

#: The last calls, by the catalog, the name of the breaker, and its share and number of calls: Spark
#: commits many batches in one process, and each time with another writer.
_windows: dict[tuple[str, str, float, int], Window] = {}

#: The types of each column. One that may be void may be missing.
_TYPES = {
    "_message_id": ("bigint",),
    "outcome": ("string",),
    "kind": ("string", "void"),
    "reason": ("string", "void"),
    "not_before": ("timestamp", "void"),
    "delay": ("double", "float", "int", "bigint", "smallint", "tinyint", "decimal", "void"),
    "dead": ("boolean", "void"),
    "trace": ("string", "void"),
}


class SettleStreamWriter(DataSourceStreamArrowWriter):
    """Settles the messages of a streaming query's micro-batches."""

    def __init__(
        self,
        options: SinkOptions,
        missing: NoSuchQueue | None = None,
        target: Target | None = None,
    ) -> None:
        self._options = options
        self._missing = missing
        self._target = target

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SettleMessage:
        """Gather the outcomes of a partition; runs on an executor."""
        if self._missing is not None and not current_batch():
            # Only in the first batch: in a later one, the queue once existed, and was dropped.
            raise self._missing
        return gather(iterator, self._options.breaker, self._target)

    @briefly
    def commit(self, messages: list[Any], batchId: int) -> None:
        """Settle the batch, except messages that are no longer held."""
        tasks = [message for message in messages if message is not None]
        faults.point("sink.before_commit")
        if tasks:
            query = tasks[0].query_id
            apply(self._options, tasks, (query, batchId) if query else None)
        faults.point("sink.committed")
        _report(self._options, tasks)
        # Only after the batch is settled, so that none of its messages is handled again.
        for task in tasks:
            if task.refusal is not None:
                raise refusal(task.refusal, self._options.queues)


class SettleBatchWriter(DataSourceArrowWriter):
    """Settles the messages that a DataFrame names."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SettleMessage:
        """Gather the outcomes of a partition; runs on an executor."""
        return gather(iterator, self._options.breaker)

    @briefly
    def commit(self, messages: list[Any]) -> None:
        """Settle all messages in one transaction."""
        tasks = [message for message in messages if message is not None]
        apply(self._options, tasks, None)
        _report(self._options, tasks)


def check_settlement(options: SinkOptions, schema: StructType) -> NoSuchQueue | None:
    """
    Check a settlement before any task runs; return the error if some of the queues do not exist.

    Raises `BadOutcome` if the DataFrame's columns do not describe one, and `NoSuchStore` or
    `NoSuchQueue` if the store or all of the queues do not exist.
    """
    for name, types in _TYPES.items():
        if name not in schema.names:
            if "void" in types:
                continue
            raise BadOutcome(
                f"mode=settle needs the column {name!r}{nearest(name, schema.names)}; the "
                "DataFrame has _message_id (long), outcome (string) and, optionally, kind, "
                "reason, not_before, delay, dead and trace"
            )
        actual = schema[name].dataType.simpleString()
        if actual.partition("(")[0] not in types:
            raise BadOutcome(f"mode=settle: column {name!r} is {actual}, not {types[0]}")
    _, missing = _queues(options)
    return missing


def gather(
    batches: Iterable[pa.RecordBatch],
    breaker: Breaker | None = None,
    target: Target | None = None,
) -> SettleMessage:
    """
    Reduce rows to one bitmap per segment and outcome, the reasons, and the breaker's tally.

    With a *target*, stage the rows that the handler has returned for it.
    """
    pass_over_imports()
    output = None
    if target is not None:
        from ignis_sink.output import stage_output

        kept: list[pa.RecordBatch] = []
        output = stage_output(_rows_in(batches, kept), target)
        batches = kept
    refused: list[str] = []
    took: list[str] = []
    tally = None if breaker is None else Tally()

    def settlements() -> Iterator[Settlement]:
        nonlocal tally
        for batch in batches:
            if REFUSAL in batch.schema.names:
                refused.extend(batch.column(REFUSAL).drop_null().slice(0, 1).to_pylist())
            if TOOK in batch.schema.names:
                took.extend(batch.column(TOOK).drop_null().to_pylist())
            if tally is not None:
                tally = Tally.sum([tally, Tally.of(batch)])
            yield Settlement.of(batch)

    settlement = Settlement.merge(settlements())
    faults.point("sink.staged")
    why = next(iter(refused), None)
    return SettleMessage(settlement, current_query(), why, tally, output, tuple(took), target)


def _rows_in(batches: Iterable[pa.RecordBatch], kept: list[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the rows for the output queue, and keep the outcomes without them."""
    for batch in batches:
        yield from batch.column(OUTPUT).drop_null().to_pylist()
        kept.append(batch.drop_columns([OUTPUT]))


def _report(options: SinkOptions, tasks: list[SettleMessage]) -> None:
    """Open or close the breaker of a query, if it has one, by the calls of some tasks."""
    breaker = options.breaker
    if breaker is None or not tasks:
        return
    from queue_core.catalog.identity.handle import known_store
    from queue_core.catalog.records.breakers import SharedBreaker

    name = breaker.name or name_for(options.queues)
    catalog, consumer = known_store(options.address).catalog, options.consumer or name
    shared = SharedBreaker(catalog, replace(breaker, check=None), name, 0.0)
    state, _ = shared.look(consumer, may_probe=False)
    tally = Tally.sum(task.tally for task in tasks if task.tally is not None)
    key = (catalog.url, name, breaker.share, breaker.of)
    window = _windows.setdefault(key, Window(breaker))
    if state.stops:
        window.clear()
        if state.state == PROBING:
            shared.probed(tally.failures > 0 if tally.calls else None, consumer)
    elif window.note(tally.calls, tally.failures) or tally.stopped:
        window.clear()
        shared.trip(consumer)


def apply(options: SinkOptions, tasks: list[SettleMessage], batch: tuple[str, int] | None) -> None:
    """Settle the outcomes of all tasks in one transaction."""
    from queue_core.catalog.holders import consumers
    from queue_core.catalog.identity.handle import known_store
    from queue_core.verbs.settle import settle

    pass_over_imports()
    store = known_store(options.address)
    queues, _ = _queues(options)
    consumer = None
    if options.consumer is not None:
        with store.catalog.read() as connection:
            consumer = consumers.by_name(connection, options.consumer)
        if consumer is None:
            raise BadOption(
                f"consumer={options.consumer!r} has never fired from this store; give the "
                "source and the sink the same consumer"
            )
    settlement = Settlement.merge(task.settlement for task in tasks)
    known = _described(options, settlement, batch)
    outputs = [task.output for task in tasks if task.output is not None]
    if outputs:
        from ignis_sink.output import settle_tasks

        target = tasks[0].target
        assert target is not None, "tasks have staged rows for it"
        settled = settle_tasks(options, queues, settlement, consumer, known, outputs, target.spec)
    else:
        settled = settle(store.catalog, queues, settlement, consumer, known, options.retry)
    if settled:
        _count_took(store.catalog, queues, tasks)
    _log.info(
        "queue %s: %s settled %d messages; it asked to delete %d, sideline %d, reload %d",
        listed(options.queues),
        "a write" if batch is None else f"query {batch[0]}, batch {batch[1]}",
        settled,
        len(settlement.deleted),
        len(settlement.sidelined),
        len(settlement.reloaded),
    )


def _count_took(
    catalog: Catalog, queues: Sequence[QueueInfo], tasks: Iterable[SettleMessage]
) -> None:
    """Count how long the calls of some tasks took."""
    ids = {queue.name: queue.id for queue in queues} | {"": queues[0].id}
    for took in read(text for task in tasks for text in task.took):
        if took.queue in ids:
            catalog.timings.add(ids[took.queue], took.measured, took.outcome)
    # At once: Spark ends this process without notice.
    catalog.timings.flush(catalog.write, at_once=True)


def _queues(options: SinkOptions) -> tuple[list[QueueInfo], NoSuchQueue | None]:
    """Return the queues that exist, and an error if some are missing; raise it if all are."""
    # Not at the top: executors import this module and need no SQL library.
    from queue_core.catalog.identity.handle import known_store
    from queue_core.catalog.queues import absent, find_those

    with known_store(options.address).catalog.read() as connection:
        found = find_those(connection, options.queues)
        errors = [absent(connection, name) for name in options.queues if name not in found]
    if not found:
        raise errors[0]
    return [*found.values()], next(iter(errors), None)


def _described(
    options: SinkOptions, settlement: Settlement, batch: tuple[str, int] | None
) -> Batch | None:
    if batch is None:
        return None
    ids = settlement.deleted | settlement.sidelined | settlement.reloaded
    digest = digest_of_ids(ids.numbers())
    return Batch(*batch, len(settlement), digest, *read_entry(options.checkpoint, batch[1]))
