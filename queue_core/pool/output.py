"""The output of a pool: the rows of its handler are loaded in the transaction that settles.

Changes: those of a settlement and of a load, in one transaction, for the settlements of all workers
that wait by then. Guard: the rows of a message are loaded only if the pool still holds it, and
deletes it. Crash: nothing was settled and nothing loaded, or both; vacuum removes the files of a
load that was not committed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from queue_core.errors import BadOption, IgnisError, QueueFull, SchemaMismatch, Unavailable
from queue_core.handling.failure_log import FAILURES
from queue_core.handling.output import Given, Output, OutputRows, failed, loadable
from queue_core.pool.dispatcher import notify_loaded
from queue_core.queue import Queue
from queue_core.queue.loading import load
from queue_core.values.model import Holder, Magazine, QueueInfo
from queue_core.values.outcomes import DELETE, RELOAD, Settlement
from queue_core.values.retry import Retry
from queue_core.values.rows import Numbers
from queue_core.values.settings import QueueSettings
from queue_core.verbs.settle import RowsOfLost, settle_before_load, settle_or_lose

#: The seconds for which a settlement waits for room in the output queue before it begins again.
ROOM_SECONDS = 2.0
_log = logging.getLogger(__name__)


class PoolOutcomes(NamedTuple):
    """The outcomes of messages, as rows of `SETTLEMENT`, and the rows for the output queue."""

    settlement: pa.Table
    #: Their numbers are rows of the settlement; None without any.
    output: OutputRows | None = None


class Settled(NamedTuple):
    """Outcomes as they were settled, and the ids of the messages that were not held any more."""

    settlement: pa.Table
    lost: Numbers


class PoolOutput:
    """
    The queue for the rows of a handler.

    Args:
        queue: The queue. It may be one of those that the pool reads.
        retry: Which failures are tried again, by class or kind; None: as the queues' settings say.
    """

    def __init__(self, queue: Queue, retry: Retry | None) -> None:
        self._queue = queue
        self._retry = retry
        #: Whether the queue had no room at the last settlement.
        self._is_full = False

    @property
    def known(self) -> Output:
        """The queue as it is known now."""
        info = self._queue.info
        return Output(info.name, info.schema, info.key)

    def outcomes_of(self, settlement: pa.Table, given: Sequence[Given]) -> PoolOutcomes:
        """Return a settlement with the rows that the handler has given for its messages."""
        return PoolOutcomes(*loadable(settlement, given, self._conformed, self._retry))

    def put_back(self, outcomes: PoolOutcomes) -> pa.Table:
        """Return a settlement that reloads the messages that have rows."""
        settlement, output = outcomes
        assert output is not None
        mask = np.zeros(settlement.num_rows, bool)
        mask[output.numbers] = True
        at = settlement.schema.get_field_index("outcome")
        column = settlement.column(at).combine_chunks()
        column = pc.if_else(pa.array(mask), pa.scalar(RELOAD, column.type), column)
        return settlement.set_column(at, settlement.schema.field(at), column)

    def settle_all(
        self,
        queue: QueueInfo,
        outcomes: Sequence[PoolOutcomes],
        holder: Holder,
        policy: Retry | None,
    ) -> list[Settled]:
        """
        Settle the outcomes of several workers in one transaction, and load their rows.

        If the rows cannot be loaded, each worker's are settled alone, and those that are the reason
        fail. Raises `Unavailable`, also while the output queue has no room.
        """
        joint = _joint(outcomes)
        try:
            lost = self._settle(queue, joint, holder, policy)
        except IgnisError as error:
            waits = isinstance(error, Unavailable)
            if isinstance(error, QueueFull):
                waits = error.may_fit
                if waits and not self._is_full:
                    _log.warning("queue %r: the pool waits for room: %s", queue.name, error)
                self._is_full = waits
            if joint.output is None or waits or error.outcome_unknown:
                raise
            if len(outcomes) > 1:
                # What is settled before another one is unavailable counts as lost the next time.
                return [
                    settled
                    for each in outcomes
                    for settled in self.settle_all(queue, [each], holder, policy)
                ]
            (one,) = outcomes
            if isinstance(error, QueueFull) and one.settlement.num_rows > 1:
                # Together, they are more than the queue can ever hold.
                parts = [self.settle_all(queue, [each], holder, policy)[0] for each in _halves(one)]
                settlement = pa.concat_tables([each.settlement for each in parts])
                return [Settled(settlement, np.concatenate([each.lost for each in parts]))]
            return [self._fail(queue, one, error, holder, policy)]
        self._is_full = False
        return [Settled(each.settlement, lost) for each in outcomes]

    def _fail(
        self,
        queue: QueueInfo,
        outcomes: PoolOutcomes,
        error: IgnisError,
        holder: Holder,
        policy: Retry | None,
    ) -> Settled:
        """Settle messages whose rows cannot be loaded: they fail."""
        assert outcomes.output is not None
        numbers = np.unique(outcomes.output.numbers).tolist()
        _log.warning(
            "queue %r: %d messages fail, since their rows cannot be loaded: %s",
            queue.name,
            len(numbers),
            error,
        )
        settlement = failed(outcomes.settlement, dict.fromkeys(numbers, error), self._retry)
        lost = self._settle(queue, PoolOutcomes(settlement), holder, policy)
        return Settled(settlement, lost)

    def _settle(
        self, queue: QueueInfo, outcomes: PoolOutcomes, holder: Holder, policy: Retry | None
    ) -> Numbers:
        """Settle and load in one transaction; return the ids of messages that are not held."""
        gone = np.empty(0, np.int64)
        while True:
            try:
                return np.union1d(gone, self._try(queue, outcomes, holder, policy))
            except RowsOfLost as error:
                # Without them: another consumer may have them, and load their rows.
                gone = np.union1d(gone, error.lost)
                outcomes = _without(outcomes, gone)

    def _try(
        self, queue: QueueInfo, outcomes: PoolOutcomes, holder: Holder, policy: Retry | None
    ) -> Numbers:
        settlement, output = Settlement.of(outcomes.settlement), outcomes.output
        if output is None or not len(output.numbers):
            return settle_or_lose(self._queue.store.catalog, queue, settlement, holder, policy)
        check_output(self._queue.name, None, self._queue.info.settings)
        ids = outcomes.settlement.column("_message_id").to_numpy()[output.numbers]
        lost = np.empty(0, np.int64)

        def first(connection: Connection) -> None:
            nonlocal lost
            info = self._queue.info
            lost = settle_before_load(connection, [queue], settlement, holder, policy, info, ids)

        opened, loads = self._queue.opened, self._queue.store._loads
        load(opened, loads, output.rows, ROOM_SECONDS, None, (None, None), first)
        # A pool that reads its own output is not idle once its last batch has loaded some.
        notify_loaded(self._queue.store.catalog, self._queue.info)
        FAILURES.note(queue.name, settlement)
        return lost

    def _conformed(self, rows: pa.Table | list[object]) -> pa.Table:
        known = self._queue.info
        try:
            return self.known.conformed(rows)
        except SchemaMismatch:
            # Another process may have added columns.
            if self._queue.opened.follow() is known:
                raise
            return self.known.conformed(rows)


def check_output(name: str, only: Magazine | None, settings: QueueSettings) -> None:
    """Raise `BadOption` for a queue that cannot be the output of a handler."""
    if only is not None:
        raise BadOption(f"output={name!r} is opened as a sideline: name the queue itself")
    if settings.is_rendezvous:
        raise BadOption(
            f"output={name!r}: the queue keeps no messages (max_size=0), so a load waits until "
            "they are fired, which cannot happen before the settlement; raise max_size"
        )


def _joint(outcomes: Sequence[PoolOutcomes]) -> PoolOutcomes:
    """
    Return the outcomes of several workers as one, with one row for each message.

    A message that was put back during its call may be in the hands of another worker, or of the
    same one again. If one of its calls deletes it, its work is done, and only the rows of that call
    are loaded. Otherwise the last one counts.
    """
    settlement = pa.concat_tables([each.settlement for each in outcomes])
    numbers, rows, first = [], [], 0
    for each in outcomes:
        if each.output is not None:
            numbers.append(each.output.numbers + first)
            rows.append(each.output.rows)
        first += each.settlement.num_rows
    output = None
    if rows:
        # Columns that were added meanwhile are null in the rows of workers that did not know them.
        joint = pa.concat_tables(rows, promote_options="default")
        output = OutputRows(np.concatenate(numbers), joint)
    chosen = chosen_rows(settlement)
    return (
        PoolOutcomes(settlement, output) if chosen is None else _taken(settlement, output, chosen)
    )


def chosen_rows(settlement: pa.Table) -> Numbers | None:
    """Return the row of each message that counts; None if each message has one row."""
    ids = settlement.column("_message_id").to_numpy()
    if len(np.unique(ids)) == len(ids):
        return None
    deletes = pc.equal(settlement.column("outcome"), DELETE).to_numpy().astype(bool)
    order = np.lexsort((np.arange(len(ids)), deletes, ids))
    last = np.append(ids[order][1:] != ids[order][:-1], True)
    return np.sort(order[last])


def _halves(outcomes: PoolOutcomes) -> list[PoolOutcomes]:
    numbers = np.arange(outcomes.settlement.num_rows)
    return [_taken(*outcomes, each) for each in np.array_split(numbers, 2)]


def _without(outcomes: PoolOutcomes, lost: Numbers) -> PoolOutcomes:
    ids = outcomes.settlement.column("_message_id").to_numpy()
    return _taken(*outcomes, np.flatnonzero(~np.isin(ids, lost)))


def _taken(settlement: pa.Table, output: OutputRows | None, kept: Numbers) -> PoolOutcomes:
    """Return only some rows of a settlement, with their rows for the output queue."""
    if output is not None:
        places = np.full(settlement.num_rows, -1)
        places[kept] = np.arange(len(kept))
        numbers = places[output.numbers]
        there = numbers >= 0
        output = OutputRows(numbers[there], output.rows.filter(pa.array(there)))
    return PoolOutcomes(settlement.take(kept), output)
