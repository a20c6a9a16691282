"""Run a handler whose calls have transactions, by the code of a pool, in the thread of a test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pyarrow as pa

from queue_core.handling.deadline import Deadline
from queue_core.handling.handler import HandlerRunner, batch_handler, takes_batches
from queue_core.pool.batch import PoolBatch, settlement_of, without_committed
from queue_core.pool.held_batch import HeldBatch
from queue_core.pool.held_bytes import HeldBytes
from queue_core.pool.source import AcquiringSource
from queue_core.pool.transactions import Transactions
from queue_core.queue import Queue
from queue_core.selection.demand import Demand
from queue_core.values.model import Ticket
from queue_core.values.retry import Retry


def run_in_transactions(
    queue: Queue,
    ticket: Ticket,
    messages: Sequence[pa.RecordBatch],
    runner: HandlerRunner,
    magazine: str,
    retry: Retry | None,
) -> tuple[pa.Table, pa.Table]:
    """
    Give the messages of a ticket to a handler.

    Args:
        queue: Their queue.
        ticket: The ticket that holds them.
        messages: The messages, in batches.
        runner: The handler, and how it is called.
        magazine: The magazine that they were fired from.
        retry: The policy for failed messages. With None, the setting ``retry``.

    Returns:
        The outcomes of all messages, and those that are still to be settled.
    """
    source = AcquiringSource(
        queue,
        ticket.consumer,
        list,
        Demand(magazine=queue.opened.magazine(magazine)),
        prefetch=False,
        on_available=lambda: None,
        held=HeldBytes(),
        retry=retry,
    )
    with ExitStack() as stack:
        handler: Any = runner.handler
        if runner.timeout is not None:
            # The time is that of the handler alone, without the beginning and the commit.
            call = stack.enter_context(Deadline(runner.timeout)).call
            handler = partial(call, runner.handler)
            if takes_batches(runner.handler):
                handler = batch_handler(handler)
        transactions = stack.enter_context(
            closing(Transactions(queue.store.catalog, handler, runner.on_none))
        )
        held = [HeldBatch(each, 0) for each in messages if each.num_rows]
        batches = [PoolBatch(each, source, runner, transactions) for each in held]
        for batch in batches:
            batch.handle()
    outcomes = settlement_of(batches)
    return outcomes, without_committed(outcomes, batches)
