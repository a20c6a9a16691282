"""The output of a pool: the rows of its handler are loaded in the transaction that settles.

Changes: those of a settlement and of a load, in one transaction, for the settlements of all workers
that wait by then. Guard: the rows of a message are loaded only if the pool still holds it, and
deletes it. Crash: nothing was settled and nothing loaded, or both; vacuum removes the files of a
load that was not committed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.catalog.database import Catalog
from queue_core.catalog.queues import SettingsChanged
from queue_core.errors import (
    BadOption,
    CatalogForbidden,
    Conflict,
    IgnisError,
    QueueFull,
    SchemaMismatch,
    Unavailable,
)
from queue_core.handling.output import Fitted, Given, Output, OutputRows, failed, fitted
from queue_core.pool.dispatcher import notify_loaded
from queue_core.queue import Queue
from queue_core.queue.loading import load_each
from queue_core.segments.stager import remove_staged
from queue_core.values.model import Holder, QueueInfo, StagedOutput, check_loads
from queue_core.values.outcomes import DELETE, RELOAD, Settlement
from queue_core.values.retry import Retry
from queue_core.values.rows import Numbers
from queue_core.verbs.capacity.bounds import OnFull, check_keeps
from queue_core.verbs.quarantine import past_damage
from queue_core.verbs.settle import settle_or_lose
from queue_core.waiting.settled_load import BEFORE_SETTLEMENT, settle_and_load

#: The seconds for which a settlement waits for room in the output queue before it begins again.
ROOM_SECONDS = 2.0
_log = logging.getLogger(__name__)


class PoolOutcomes(NamedTuple):
    """The outcomes of messages, as rows of `SETTLEMENT`, and the rows for the output queue."""

    settlement: pa.Table
    #: Their numbers are rows of the settlement; None without any.
    output: OutputRows | None = None

    @staticmethod
    def joint(parts: Sequence[PoolOutcomes]) -> PoolOutcomes:
        """
        Return the outcomes of several workers as one, with one row for each message.

        A message that was put back during its call may be in the hands of another worker, or of
        the same one again. If one of its calls deletes it, its work is done, and only the rows of
        that call are loaded. Otherwise the last one counts.
        """
        settlement = pa.concat_tables([each.settlement for each in parts])
        rows = ((each.output, each.settlement.num_rows) for each in parts)
        joint = PoolOutcomes(settlement, OutputRows.joined(rows))
        ids = settlement.column("_message_id").to_numpy()
        if len(np.unique(ids)) == len(ids):
            return joint
        deletes = pc.equal(settlement.column("outcome"), DELETE).to_numpy()
        order = np.lexsort((np.arange(len(ids)), deletes, ids))
        last = np.append(ids[order][1:] != ids[order][:-1], True)
        return joint.take(np.sort(order[last]))

    def take(self, kept: Numbers) -> PoolOutcomes:
        """Return only some rows of the settlement, with their rows for the output queue."""
        output = self.output
        if output is not None:
            places = np.full(self.settlement.num_rows, -1)
            places[kept] = np.arange(len(kept))
            numbers = places[output.numbers]
            there = numbers >= 0
            left = OutputRows(numbers[there], output.rows.filter(pa.array(there)))
            output = left if len(left.numbers) else None
        return PoolOutcomes(self.settlement.take(kept), output)

    def after(self, settled: Settled) -> PoolOutcomes | None:
        """Return the rows that are left to settle, if any."""
        done, rows = settled.settlement.num_rows, self.settlement.num_rows
        return self.take(np.arange(done, rows)) if done < rows else None

    def put_back(self) -> PoolOutcomes:
        """Return outcomes that reload the messages that have rows."""
        assert self.output is not None
        settlement = self.settlement
        mask = np.isin(np.arange(settlement.num_rows), self.output.numbers)
        outcomes = pc.if_else(mask, RELOAD, settlement.column("outcome"))
        at = settlement.schema.get_field_index("outcome")
        return PoolOutcomes(settlement.set_column(at, settlement.schema.field(at), outcomes))


class Settled(NamedTuple):
    """
    Outcomes as they were settled, and the ids of the messages that were not held any more.

    They may be the first ones of those that were given: the others wait for room, or the catalog.
    """

    settlement: pa.Table
    lost: Numbers

    @staticmethod
    def joint(parts: Sequence[Settled]) -> Settled:
        """Return several parts as one."""
        settlement = pa.concat_tables([each.settlement for each in parts])
        return Settled(settlement, np.concatenate([each.lost for each in parts]))


class PoolOutput:
    """
    The queue for the rows of a handler, and the settlements with them.

    Args:
        output: The queue. It may be the one that the pool reads.
        retry: Which failures are tried again, by class or kind; None: as the queue's settings say.
        queue: The queue whose messages are settled.
        holder: Who holds them.
        exclusion: Held during each transaction, and not while files are written.
    """

    def __init__(
        self,
        output: Queue,
        retry: Retry | None,
        queue: Queue,
        holder: Holder,
        exclusion: AbstractContextManager[object],
    ) -> None:
        self._output = output
        self._retry = retry
        self._queue = queue
        self._holder = holder
        self._exclusion = exclusion
        #: Whether the output queue had no room at the last settlement.
        self._is_full = False

    def fitted(self, given: Sequence[Given]) -> Fitted:
        """Return the rows of a batch with the columns of the queue."""
        return fitted(given, self._conformed)

    def outcomes_of(
        self, settlement: pa.Table, parts: Sequence[tuple[Fitted, int]]
    ) -> PoolOutcomes:
        """Return the outcomes of batches; *parts*: the rows of each, and its number of messages."""
        failures: dict[int, Exception] = {}
        first = 0
        for part, messages in parts:
            failures |= {first + number: error for number, error in part.failures.items()}
            first += messages
        rows = OutputRows.joined((part.rows, messages) for part, messages in parts)
        return PoolOutcomes(failed(settlement, failures, self._retry), rows)

    def settle_all(self, outcomes: Sequence[PoolOutcomes]) -> list[Settled]:
        """
        Settle the outcomes of several workers in one transaction, and load their rows.

        If the rows cannot be loaded, each worker's are settled alone, and those at fault fail.
        Raises `Unavailable` if nothing was settled, also while the output queue has no room,
        or changes faster than its policy decides. Raises `CatalogForbidden` if the role may not
        load; it puts the messages with rows back.
        """
        joint = PoolOutcomes.joint(outcomes)
        try:
            lost = past_damage(partial(self._settle, joint))
        except Conflict as error:
            # Others changed something first. No message is at fault, and nothing was changed.
            raise Unavailable(str(error)) from error
        except IgnisError as error:
            waits = isinstance(error, Unavailable)
            if isinstance(error, QueueFull):
                waits = error.may_fit
                if waits and not self._is_full:
                    _log.warning("queue %r: the pool waits for room: %s", self._queue.name, error)
                self._is_full = waits
            if joint.output is None or waits or error.outcome_unknown:
                raise
            if isinstance(error, CatalogForbidden):
                # No message is at fault, so none may lose an attempt.
                self._settle(joint.put_back())
                raise
            if len(outcomes) > 1:
                return self._in_turn(outcomes)
            (one,) = outcomes
            if isinstance(error, QueueFull) and one.settlement.num_rows > 1:
                # Together, they are more than the queue can ever hold.
                numbers = np.arange(one.settlement.num_rows)
                halves = [one.take(half) for half in np.array_split(numbers, 2)]
                return [Settled.joint(self._in_turn(halves))]
            return [self._fail(one, error)]
        self._is_full = False
        return [Settled(each.settlement, lost) for each in outcomes]

    def _in_turn(self, outcomes: Sequence[PoolOutcomes]) -> list[Settled]:
        """Settle each alone, up to the first one that has to wait; raise if nothing was settled."""
        done = [Settled(each.settlement.slice(0, 0), np.empty(0, np.int64)) for each in outcomes]
        for number, each in enumerate(outcomes):
            try:
                (done[number],) = self.settle_all([each])
            except Unavailable:
                if not number:
                    raise
                break
            if each.after(done[number]) is not None:
                break
        return done

    def _fail(self, outcomes: PoolOutcomes, error: IgnisError) -> Settled:
        """Settle messages whose rows cannot be loaded: they fail."""
        assert outcomes.output is not None
        numbers = np.unique(outcomes.output.numbers).tolist()
        _log.warning(
            "queue %r: %d messages fail, since their rows cannot be loaded: %s",
            self._queue.name,
            len(numbers),
            error,
        )
        settlement = failed(outcomes.settlement, dict.fromkeys(numbers, error), self._retry)
        return Settled(settlement, self._settle(PoolOutcomes(settlement)))

    def _settle(self, outcomes: PoolOutcomes) -> Numbers:
        """Settle and load in one transaction; return the ids of messages that are not held."""
        opened, queue = self._output.opened, self._queue.info
        policy = None if self._retry is None else self._retry.by_kinds()
        if outcomes.output is None:
            with self._exclusion:
                return settle_rows(opened.catalog, queue, outcomes.settlement, self._holder, policy)
        settlement = Settlement.of(outcomes.settlement)
        numbers, rows = outcomes.output
        lost: Numbers | None = None
        ids = outcomes.settlement.column("_message_id").to_numpy()[numbers]

        def load(info: QueueInfo, table: pa.Table) -> pa.Array:
            nonlocal lost
            staged, order = opened.spread.staged(info, table)
            of_rows = np.empty_like(ids)
            of_rows[order] = ids
            try:
                with self._exclusion:
                    lost = settle_and_load(
                        opened.catalog,
                        opened.storage,
                        [queue],
                        settlement,
                        self._holder,
                        policy,
                        info,
                        StagedOutput(tuple(staged), of_rows),
                        OnFull(timeout=ROOM_SECONDS),
                    )
            except SettingsChanged:
                remove_staged(opened.storage, staged)
                raise
            return pa.array([], pa.int64())

        load_each(opened, rows, (None, None), load)
        # A pool that reads its own output is not idle once its last batch has loaded some.
        notify_loaded(opened.catalog, self._output.info)
        return _known(lost)

    def _conformed(self, rows: pa.Table | list[object]) -> pa.Table:
        known = self._output.info
        try:
            return Output(known).conformed(rows)
        except SchemaMismatch:
            # Another process may have added columns.
            present = self._output.opened.follow()
            if present is known:
                raise
            return Output(present).conformed(rows)


def settle_rows(
    catalog: Catalog, queue: QueueInfo, rows: pa.Table, holder: Holder, policy: Retry | None
) -> Numbers:
    """Settle rows of `SETTLEMENT`; return the ids of messages that are not held."""
    return _known(settle_or_lose(catalog, [queue], Settlement.of(rows), holder, retry=policy))


def _known(lost: Numbers | None) -> Numbers:
    assert lost is not None, "only a batch of a query can have been settled before"
    return lost


def check_output(queue: Queue) -> None:
    """Raise `BadOption` for a queue that cannot be the output of a handler."""
    if queue.opened.only is not None:
        raise BadOption(f"output={queue.name!r} is opened as a sideline: name the queue itself")
    check_loads(queue.info)
    check_keeps(queue.info, BEFORE_SETTLEMENT)
