"""Run a handler on the messages that wait, in the thread of the test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOption
from queue_core.handling.contract import Contract, Ignorable, MagazineHandler
from queue_core.handling.deadline import Deadline
from queue_core.handling.handler import (
    BatchHandler,
    HandlerRunner,
    RowHandler,
    batch_handler,
    takes_batches,
)
from queue_core.handling.output import Output
from queue_core.handling.results import refusal
from queue_core.pool.batch import PoolBatch, settlement_of, without_committed
from queue_core.pool.held import HeldBatch, HeldBytes
from queue_core.pool.output import PoolOutcomes, PoolOutput, check_output
from queue_core.pool.source import AcquiringSource
from queue_core.pool.transactions import Transactions
from queue_core.queue import Queue
from queue_core.selection.request import Demand
from queue_core.testing.handled import Handled
from queue_core.values.durations import Duration, check_whole
from queue_core.values.outcomes import Settlement
from queue_core.values.retry import Retry

if TYPE_CHECKING:
    from queue_core.catalog.database import Catalog
    from queue_core.selection.selection import AnySelector
    from queue_core.store import Store


def handle(
    queue: Queue,
    handler: RowHandler | BatchHandler | MagazineHandler,
    *,
    max_messages: int | None = None,
    batch: int = 1000,
    ignorable: Ignorable = (),
    handler_timeout: Duration | None = None,
    payload: str | None = None,
    payload_type: type | None = None,
    message_type: type | None = None,
    with_metadata: bool = False,
    on_none: str | None = None,
    retry: Retry | str | None = None,
    transactional: bool = False,
    columns: Sequence[str] | None = None,
    selector: AnySelector | None = None,
    order_by: str | None = None,
    magazine: str = "main",
    output: str | None = None,
) -> Handled:
    """
    Fire the messages that wait, give them to a handler, settle them, and return the outcomes.

    The handler is called as in `ConsumerPool` and ``consume``, by the same code, but in the
    caller's thread: messages that wait are handled once, and those that the handler loads are not.
    The arguments not listed here have no meaning for one run.

    Args:
        queue: The queue.
        handler: As in `ConsumerPool`.
        max_messages: At most this many messages, 1 or more. By default, all that wait.
        batch: The most messages that a batch handler takes at once, 1 or more.
        ignorable: As in `ConsumerPool`.
        handler_timeout: Seconds, or a text such as ``"30s"`` or a ``timedelta``, that one call may
            take, only in the main thread. By default, no limit.
        payload: As in `ConsumerPool`.
        payload_type: As in `ConsumerPool`.
        message_type: As in `ConsumerPool`.
        with_metadata: As in `ConsumerPool`.
        on_none: The outcome of a message for which the handler returns None: ``delete`` or
            ``sideline``. By default, a handler whose first result is None is refused.
        retry: As in `ConsumerPool`.
        transactional: Whether each call has a transaction, as in `ConsumerPool`. The handler then
            takes a ``Connection`` of SQLAlchemy as its last argument. On SQLite, nobody else
            writes to the store during a call: a handler that loads messages uses `Queue.within`.
            Cannot be combined with a batch handler of payloads or objects.
        columns: As in `ConsumerPool`.
        selector: A SQL condition or a function, as in `Queue.fire`. By default, all messages.
        order_by: The order, as in `Queue.fire`. By default, the queue's own.
        magazine: ``main`` or ``sideline``.
        output: The name of a queue for the rows that the handler returns, as in `ConsumerPool`.

    Returns:
        The messages with their outcomes, and those that were loaded meanwhile.

    Raises:
        BadOption: An argument is not valid, or the handler cannot take its arguments.
        BadOutcome: The handler returned None before it decided about any message.
        BadSelector: *selector* or *order_by* cannot be parsed, or names an unknown column.
        SchemaMismatch: The queue lacks one of *columns*, or does not fit *message_type*.
    """
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
        transactional=transactional,
    )
    contract.check()
    check_whole("batch", batch, 1)
    # What the messages of this queue may take at most.
    timeout = None if handler_timeout is None else contract.timeout_for([queue.info])
    runner = HandlerRunner(contract, timeout)
    target = None
    if output is not None:
        target = queue.store.queue(output)
        check_output(target)
        if transactional:
            raise BadOption("transactional=True cannot be combined with output, as in ConsumerPool")
        runner = replace(runner, output=Output(target.info))
    names = contract.read(queue.refresh().schema.names)
    contract.check_queue(queue.name, queue.schema, names)
    store = queue.store
    before = {name: _browsed(store, name).column("_message_id") for name in store.queues()}
    firing = queue.fire(
        "all" if max_messages is None else max_messages,
        selector=selector,
        order_by=order_by,
        magazine=magazine,
    )
    settled = settlement_of([])
    if firing.ticket is not None:
        source = AcquiringSource(
            queue,
            firing.ticket.consumer,
            list,
            Demand(magazine=queue.opened.magazine(magazine)),
            prefetch=False,
            on_available=lambda: None,
            held=HeldBytes(),
            retry=contract.retry,
            output=target,
        )
        given = firing.messages.select(names).to_batches(max_chunksize=batch)
        batches = _called(source, given, runner, store.catalog if transactional else None)
        settled = settlement_of(batches)
        left = without_committed(settled, batches)
        if source.output is not None:
            settled = _settled(source.output, left, batches)
        else:
            policy = None if contract.retry is None else contract.retry.by_kinds()
            queue.settle(Settlement.of(left), firing, retry=policy)
        if batches and (why := batches[0].calls.results.refusal(contract.handler)):
            raise refusal(why, [queue.name])
    return Handled(queue.name, _joined(firing.messages, settled), _new(store, before))


def _called(
    source: AcquiringSource,
    messages: Sequence[pa.RecordBatch],
    runner: HandlerRunner,
    catalog: Catalog | None,
) -> list[PoolBatch]:
    """Return batches whose calls are all made, each in a transaction of a catalog, if given."""
    contract = runner.contract
    with ExitStack() as stack:
        if runner.timeout is not None:
            # The time is that of the handler alone, without the beginning and the commit.
            call = stack.enter_context(Deadline(runner.timeout)).call
            limited: Any = partial(call, contract.handler)
            if takes_batches(contract.handler):
                limited = batch_handler(limited)
            contract = replace(contract, handler=limited)
            runner = replace(runner, contract=contract)
        transactions = None
        if catalog is not None:
            transactions = Transactions(catalog, contract.handler, contract.on_none)
            stack.enter_context(closing(transactions))
        batches = []
        for each in messages:
            if each.num_rows:
                batches.append(PoolBatch(HeldBatch(each, 0), source, runner, transactions))
                batches[-1].handle()
    return batches


def _settled(to: PoolOutput, settlement: pa.Table, batches: Sequence[PoolBatch]) -> pa.Table:
    """Settle all outcomes, and return them; raises `QueueFull`."""
    parts = [(batch.fit(), batch.messages.num_rows) for batch in batches]
    rest: PoolOutcomes | None = to.outcomes_of(settlement, parts)
    done = []
    while rest is not None:
        (settled,) = to.settle_all([rest])
        done.append(settled.settlement)
        rest = rest.after(settled)
    return pa.concat_tables(done)


def _joined(messages: pa.Table, settled: pa.Table) -> pa.Table:
    """Add the columns of the settlement, whose rows are in the order of the messages."""
    for name in settled.column_names[1:]:
        if name in messages.column_names:
            messages = messages.drop_columns(name)
        messages = messages.append_column(name, settled.column(name))
    return messages


def _new(store: Store, before: dict[str, Any]) -> dict[str, pa.Table]:
    """Return the messages of each queue that were not there before."""
    found = {}
    for name in store.queues():
        table = _browsed(store, name)
        if name in before:
            known = pc.is_in(table.column("_message_id"), value_set=before[name].combine_chunks())
            table = table.filter(pc.invert(known))
        if table.num_rows:
            found[name] = table
    return found


def _browsed(store: Store, name: str) -> pa.Table:
    queue = store.queue(name)
    return pa.concat_tables([queue.browse(), queue.browse(magazine="sideline")])
