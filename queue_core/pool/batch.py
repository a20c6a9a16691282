"""A batch that a worker handles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.handling.calls import MessageCalls
from queue_core.handling.deadline import interruptibly
from queue_core.handling.handler import HandlerRunner, settlement_rows
from queue_core.handling.output import Fitted
from queue_core.handling.verdicts import SETTLEMENT
from queue_core.pool.held import HeldBatch
from queue_core.pool.source import MessageSource
from queue_core.pool.transactions import Transactions
from queue_core.support.trace_context import handled_for
from queue_core.values.rows import Numbers


class PoolBatch:
    """Messages of one source and the handler's calls for them; another thread can continue it."""

    def __init__(
        self,
        taken: HeldBatch,
        source: MessageSource,
        runner: HandlerRunner,
        transactions: Transactions | None = None,
    ) -> None:
        self.source = source
        #: All columns until all calls are made, and then only the ids.
        self.messages = source.handed_out(taken.messages)
        #: In a fair queue, the ids with the values of its column.
        self.flows = source.flows(taken.messages)
        self.calls = runner.calls_for(self.messages)
        self.calls.tracer = source.tracer
        # A consumer of a sideline would fire them again at once.
        self.calls.may_put_off = not source.is_sideline
        self._fitted: Fitted | None = None
        #: The bytes that the pool counts for them.
        self.bytes = taken.bytes
        #: Ids of messages that were settled in a transaction of the handler.
        self.committed: list[pa.Array] = []
        #: The outcomes of calls whose transaction is committed, or about to be.
        self.decided: list[pa.RecordBatch] = []
        #: Whether a call waits for its transaction, which its time does not include.
        self.waits = False
        # With transactions, each call has one.
        if transactions is None:
            self._handler: Callable[..., Any] = partial(interruptibly, runner.contract.handler)
        else:
            self._handler = partial(transactions.call, self)

    def handle(self) -> None:
        """Make the remaining calls, and keep of the messages what their settlement needs."""
        token = handled_for.set(self.source.names)
        try:
            self.calls.run(self._handler)
        finally:
            handled_for.reset(token)
        # Now, while the messages of the next batch are not there yet: rows of Python take memory.
        self.fit()
        self.calls.release()
        self.messages = self.messages.select(["_message_id"])
        if self.flows is not None:
            self.source.ended(self.flows, self.calls)
            self.flows = None

    def fit(self) -> Fitted:
        """Return the rows that the handler has given for the output queue, if there is one."""
        if self._fitted is None:
            output = self.source.output
            self._fitted = Fitted() if output is None else output.fitted(self.calls.given)
        return self._fitted

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for a transaction within the block."""
        self.waits = True
        try:
            yield
        finally:
            self.waits = False

    def ids_of(self, arguments: Sequence[Any]) -> pa.Array:
        """Return the ids of the messages of the call in progress, which has these arguments."""
        if isinstance(arguments[0], pa.RecordBatch):
            return arguments[0].column("_message_id")
        return self.messages.column("_message_id").slice(self.calls.completed, 1)


def settlement_of(batches: Sequence[PoolBatch]) -> pa.Table:
    """
    Return the outcomes of batches as rows of `SETTLEMENT`, once all their calls are made.

    All are of one handler, of single messages or of batches.
    """
    single = [batch.calls for batch in batches if isinstance(batch.calls, MessageCalls)]
    if single:
        # The batches may have one message each: columns for each would cost more than the calls.
        ids = pa.concat_arrays([batch.messages.column("_message_id") for batch in batches])
        parts = [settlement_rows(ids, MessageCalls.joint_verdicts(single))]
    else:
        parts = [
            settlement_rows(each.messages.column("_message_id"), each.calls.verdicts)
            for each in batches
        ]
    return pa.Table.from_batches(parts, schema=SETTLEMENT)


def without_committed(rows: pa.Table, batches: Sequence[PoolBatch]) -> pa.Table:
    """
    Leave out what transactions of handlers have settled.

    A failed message may be back already, and in the hands of the same pool.
    """
    committed = [ids for batch in batches for ids in batch.committed]
    if not committed:
        return rows
    settled = pc.is_in(rows.column("_message_id"), value_set=pa.chunked_array(committed))
    return rows.filter(pc.invert(settled))


def as_committed(
    rows: pa.Table, lost: Numbers, batches: Sequence[PoolBatch]
) -> tuple[pa.Table, Numbers]:
    """
    Return outcomes, and ids that were lost, as transactions of handlers have ended them.

    The pool may have timed out or cancelled a call whose commit was under way, and succeeded.
    """
    # Of several attempts of a call, the last one counts.
    decided = [each for batch in batches for each in reversed(batch.decided)]
    if not decided:
        return rows, lost
    made = pa.Table.from_batches(decided).combine_chunks()
    ids, own = rows.column("_message_id"), made.column("_message_id")
    gone = [each for batch in batches for each in batch.committed]
    ended = pc.is_in(ids, value_set=pa.chunked_array([*gone, pa.array(lost, pa.int64())]))
    at = pc.if_else(ended, pc.index_in(ids, value_set=own), pa.scalar(None, pa.int32()))
    for name in ("outcome", "kind"):
        values = pc.if_else(at.is_valid(), made.column(name).take(at), rows.column(name))
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows, np.setdiff1d(lost, own.to_numpy())
