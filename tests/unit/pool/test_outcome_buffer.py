"""Outcomes of handled batches: settled together, counted, and retried."""

import threading
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import CatalogUnavailable
from queue_core.pool import outcome_buffer
from queue_core.pool.batch import PoolBatch
from queue_core.pool.held import HeldBatch
from queue_core.pool.outage import Trouble
from queue_core.pool.outcome_buffer import OutcomeBuffer
from queue_core.pool.output import Settled
from queue_core.pool.timings import LINGER_SECONDS
from tests.unit.handling.handler_runs import runner_of


class Source:
    """A source that keeps its settlements, after it was unavailable *failures* times."""

    output = None
    tracer = None
    names = ()
    is_sideline = False

    def __init__(self, failures=0, lost=()):
        self.trouble = Trouble("orders", lambda: None)
        self.failures = failures
        self.lost = lost
        self.settled = []

    def handed_out(self, messages):
        return messages

    def flows(self, messages):
        return None

    def note_handled(self, *_):
        pass

    def settle(self, outcomes):
        if self.failures:
            self.failures -= 1
            raise CatalogUnavailable("gone")
        self.settled.append(outcomes.settlement.column("_message_id").to_pylist())
        lost = [number for number in self.settled[-1] if number in self.lost]
        return Settled(outcomes.settlement, np.array(lost, np.int64))


def noting(counts, sizes):
    """Return a function that notes what was settled."""

    def note(outcomes, size):
        counts.append(outcomes)
        sizes.append(size)

    return note


def handled(source, *numbers, handler=lambda message: True):
    """Return a batch whose calls are all made."""
    messages = pa.record_batch({"_message_id": pa.array(numbers, pa.int64())})
    taken = HeldBatch(messages, messages.nbytes)
    batch = PoolBatch(taken, source, runner_of(handler, ignorable=(KeyError,)))
    batch.handle()
    return batch


def test_batches_of_a_source_are_settled_together_and_counted():
    def handler(message):
        if message["_message_id"] == 2:
            raise KeyError("ignored")
        return message["_message_id"] != 3

    counts, sizes, one, other = [], [], Source(), Source()
    buffer = OutcomeBuffer(noting(counts, sizes), at_once=False)
    for batch in (handled(one, 1, 2, handler=handler), handled(other, 5), handled(one, 3, 4)):
        buffer.add(batch)
    buffer.add(handled(one, 3, handler=handler))

    assert buffer.bytes == 6 * 8
    buffer.settle(threading.Event())

    assert (one.settled, other.settled) == ([[1, 2, 3, 4, 3]], [[5]])
    assert sum(counts, Counter()) == {"deleted": 4, "ignored": 1, "sidelined": 1}
    assert sizes == [5 * 8, 8]
    assert buffer.bytes == 0


@pytest.mark.parametrize("at_once", [True, False])
def test_outcomes_are_due_at_once_or_after_the_linger(monkeypatch, at_once):
    now = [100.0]
    monkeypatch.setattr(outcome_buffer.time, "monotonic", lambda: now[0])
    buffer = OutcomeBuffer(noting([], []), at_once=at_once)
    assert not buffer.is_due

    buffer.add(handled(Source(), 1))
    assert buffer.is_due is at_once
    now[0] += 2 * LINGER_SECONDS
    assert buffer.is_due
    buffer.settle(threading.Event())
    assert not buffer.is_due


def test_a_settlement_is_retried_until_the_end(monkeypatch):
    monkeypatch.setattr(outcome_buffer, "RETRY_SECONDS", 0.0)
    source, ending = Source(failures=2), threading.Event()
    buffer = OutcomeBuffer(noting([], []), at_once=True)
    buffer.add(handled(source, 1))
    buffer.settle(ending)
    assert source.settled == [[1]]

    source.failures = 1
    buffer.add(handled(source, 2))
    ending.set()
    with pytest.raises(CatalogUnavailable, match="gone"):
        buffer.settle(ending)


def test_lost_messages_count_for_themselves():
    counts, source = [], Source(lost=(2, 3, 4))
    buffer = OutcomeBuffer(noting(counts, []), at_once=True)
    transactional = handled(source, 3, 5)
    # Its own transaction has deleted it, so the settlement finds it no longer held.
    transactional.committed.append(pa.array([3]))
    failed = handled(source, 4, handler=lambda _: False)
    for batch in (handled(source, 1, 2), transactional, failed):
        buffer.add(batch)

    buffer.settle(threading.Event())

    assert sum(counts, Counter()) == {"deleted": 3, "lost": 2}


def test_an_early_settlement_is_tried_once_and_keeps_what_is_left():
    """The pool's watcher makes it, and has calls to time out meanwhile."""
    sizes, one, other = [], Source(), Source(failures=1)
    buffer = OutcomeBuffer(noting([], sizes), at_once=False)
    for batch in (handled(one, 1), handled(other, 2)):
        buffer.add(batch)

    with pytest.raises(CatalogUnavailable, match="gone"):
        buffer.settle(None)
    assert (one.settled, other.settled, buffer.bytes) == ([[1]], [], 8)

    buffer.settle(None)
    assert (one.settled, other.settled, buffer.bytes) == ([[1]], [[2]], 0)
    assert sizes == [8, 8]
