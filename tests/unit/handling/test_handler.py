"""The outcomes of messages, by the results and exceptions of a handler; without Spark."""

import asyncio
import datetime as dt
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from pyspark_ignis import batch_handler
from queue_core.handling.handler import RunnerByQueue, takes_batches
from queue_core.handling.results import REFUSAL
from queue_core.values.failure_kinds import reason_of
from queue_core.values.outcomes import DELETE, SIDELINE
from tests.unit.handling.handler_runs import (
    DELETED,
    REJECTED,
    UNHANDLED,
    Declined,
    DeclinedForGood,
    late,
    messages,
    outcomes,
    raising,
    runner_of,
)

#: A handler of messages, and one of batches.
MARKS = pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
UNDECIDED = ("sideline", "undecided", "not a bool: the handler returned NoneType")


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Asynchronous:
    async def __call__(self, message):
        return True


class Shop:
    def open(self, batch):
        return [True] * batch.num_rows

    __call__ = open


async def at_last(message):
    await asyncio.sleep(0)
    return message["_message_id"] != 1


async def slow(message):
    await asyncio.sleep(60 * (message["_message_id"] == 1))
    return True


async def fails(message):
    await asyncio.sleep(0)
    raise Declined("no funds")


async def of_batch(batch):
    await asyncio.sleep(0)
    return [True] * batch.num_rows


@pytest.mark.parametrize(
    ("handler", "settled"),
    [
        (lambda _: True, [DELETED] * 3),
        (lambda _: np.True_, [DELETED] * 3),
        (lambda _: False, [REJECTED] * 3),
        (lambda _: np.False_, [REJECTED] * 3),
        # Coroutine functions are awaited, and so are coroutines that plain functions return.
        (at_last, [DELETED, REJECTED, DELETED]),
        (partial(at_last), [DELETED, REJECTED, DELETED]),
        (Asynchronous(), [DELETED] * 3),
        (lambda message: at_last(dict(message)), [DELETED, REJECTED, DELETED]),
        (slow, [DELETED, late(1), DELETED]),
        (lambda message: slow(dict(message)), [DELETED, late(1), DELETED]),
        (fails, [("sideline", "exception", "Declined: no funds")] * 3),
        (batch_handler(of_batch), [DELETED] * 3),
        (batch_handler(lambda b: asyncio.sleep(0, [True] * b.num_rows)), [DELETED] * 3),
    ],
)
def test_a_result_decides(handler, settled):
    assert outcomes(handler, timeout=1) == settled


async def gathered(batch):
    """The call for the second message is cancelled, as some libraries end theirs."""
    calls = [asyncio.ensure_future(asyncio.sleep(0, True)) for _ in range(batch.num_rows)]
    calls[1].cancel()
    return await asyncio.gather(*calls, return_exceptions=True)


def test_a_cancelled_call_among_those_of_a_batch_sidelines_its_message_alone():
    cancelled = ("sideline", "exception", reason_of(asyncio.CancelledError("")))

    assert outcomes(batch_handler(gathered)) == [DELETED, cancelled, DELETED]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Declined("no funds"), "Declined: no funds"),
        (Declined(), "Declined"),
        (KeyError("customer"), "KeyError: 'customer'"),
        (OSError("no file caf\udce9"), "OSError: no file caf\\udce9"),
        (StopIteration("early"), "StopIteration: early"),
        (Unspeakable(), "Unspeakable: (its message cannot be shown)"),
        # Errors that would end the process.
        *((each, reason_of(each)) for each in (SystemExit(1), GeneratorExit())),
        (asyncio.CancelledError(), reason_of(asyncio.CancelledError())),
    ],
)
@MARKS
def test_an_exception_sidelines_with_its_type_and_message(error, reason, mark):
    assert outcomes(mark(raising(error))) == [("sideline", "exception", reason)] * 3


@pytest.mark.parametrize(
    ("error", "ignorable", "outcome"),
    [
        (Declined("x"), Declined, "delete"),
        (DeclinedForGood("x"), Declined, "delete"),
        # A superclass of an ignorable one.
        (Declined("x"), DeclinedForGood, "sideline"),
    ],
)
@MARKS
def test_an_ignorable_exception_deletes_with_its_reason(error, ignorable, outcome, mark):
    settled = outcomes(mark(raising(error)), ignorable=(ignorable,))

    assert settled == [(outcome, "exception", f"{type(error).__name__}: x")] * 3


@MARKS
def test_the_interrupt_of_a_person_is_raised(mark):
    with pytest.raises(KeyboardInterrupt):
        outcomes(mark(raising(KeyboardInterrupt())))


@pytest.mark.parametrize("strange", [None, 1, "true", 0.0, [True]])
def test_a_result_that_is_not_a_bool_sidelines_with_a_reason(strange):
    told = f"not a bool: the handler returned {type(strange).__name__}"

    assert outcomes(lambda _: strange, on_none="sideline") == [("sideline", "undecided", told)] * 3


def test_after_a_first_result_of_none_no_message_is_handled():
    seen = []

    assert outcomes(lambda message: seen.append(message)) == [UNDECIDED, UNHANDLED, UNHANDLED]
    assert len(seen) == 1
    # After a decision, a None sidelines its message alone.
    results = iter([False, None, True])
    assert outcomes(lambda _: next(results)) == [REJECTED, UNDECIDED, DELETED]


@pytest.mark.parametrize("on_none", ["delete", "sideline"])
@MARKS
def test_on_none_is_the_outcome_of_none(on_none, mark):
    assert [one[0] for one in outcomes(mark(lambda _: None), on_none=on_none)] == [on_none] * 3


def test_a_batch_handler_that_returns_nothing_is_called_once():
    calls = []
    runner = runner_of(batch_handler(calls.append))

    first, second = runner.run_task([messages(), messages()])

    assert len(calls) == 1
    assert first.column("outcome").to_pylist() == ["sideline"] * 3
    assert second.column("outcome").to_pylist() == ["reload"] * 3
    (why,) = set(first.column("_refusal").to_pylist())
    assert why.startswith("the handler list.append returned None")
    (settled,) = runner_of(lambda _: True).run_task([messages()])
    assert settled.column("_refusal").null_count == 3


def test_each_message_has_its_own_outcome():
    def handler(message):
        if message["n"] == 1:
            raise Declined(message["n"])
        return message["n"] != 2

    assert outcomes(handler, messages(4, n=range(4))) == [
        DELETED,
        ("sideline", "exception", "Declined: 1"),
        REJECTED,
        DELETED,
    ]
    # Empty batches do not reach the handler.
    assert outcomes(raising(Declined()), messages(0)) == []


def test_an_unmarked_callable_takes_messages_and_any_callable_can_be_marked():
    assert not takes_batches(raising(Declined()))
    for handler in (Shop(), Shop().open, partial(Shop().open), lambda b: [True] * b.num_rows):
        assert takes_batches(batch_handler(handler))
        assert outcomes(batch_handler(handler)) == [DELETED] * 3
    # A marked function is still itself.
    assert batch_handler(at_last) is at_last


def test_a_marked_handler_with_some_arguments_given_stays_marked():
    marked = batch_handler(lambda batch, verdict: [verdict] * batch.num_rows)

    assert outcomes(partial(marked, verdict=True)) == [DELETED] * 3


def batch_of_queues(*rows):
    names, ids = zip(*rows, strict=True)
    return pa.record_batch({"_message_id": pa.array(ids, pa.int64()), "_queue": pa.array(names)})


def runners_of(handlers):
    return RunnerByQueue(
        {name: runner_of(handler, columns=("_message_id",)) for name, handler in handlers.items()}
    )


def settled(batches):
    return [
        (row["_message_id"], row["outcome"], row[REFUSAL])
        for each in batches
        for row in each.to_pylist()
    ]


def test_each_message_is_handled_once_by_the_handler_of_its_queue_in_order():
    seen = []
    handlers = {
        name: lambda message, name=name: not seen.append((name, message["_message_id"]))
        for name in ("a", "b")
    }
    given = [batch_of_queues(("a", 1), ("b", 2), ("a", 3)), batch_of_queues(("b", 4))]

    found = settled(runners_of(handlers).run_task(iter(given)))

    assert seen == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]
    assert sorted(found) == [(number, DELETE, None) for number in (1, 2, 3, 4)]


def test_a_refusal_names_the_queue_and_each_task_judges_anew():
    handlers = {"a": lambda message: None, "b": lambda message: False}
    runners = runners_of(handlers)

    for _ in range(2):
        of_a, of_b = settled(runners.run_task([batch_of_queues(("a", 1), ("b", 2))]))

        assert of_a[:2] == (1, SIDELINE)
        assert of_a[2].startswith("queue 'a': the handler ")
        assert of_b == (2, SIDELINE, None)


def test_times_are_in_utc_whatever_the_zone_of_a_session_of_spark_is():
    moment = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    zoned = pa.timestamp("us", "America/New_York")
    many = pa.array([[moment]], pa.list_(pa.field("element", zoned)))
    batch = messages(1, at=pa.array([moment], zoned), many=many)
    seen = []

    def one(message):
        return not seen.extend([message["at"].isoformat(), message["many"][0].isoformat()])

    @batch_handler
    def several(rows):
        seen.extend(str(rows.schema.field(name).type) for name in ("at", "many"))
        return [True]

    for handler in (one, several):
        assert len(list(runner_of(handler).run_task([batch]))) == 1
    noon, kind = "2024-07-01T12:00:00+00:00", "timestamp[us, tz=UTC]"
    assert seen == [noon, noon, kind, f"list<element: {kind}>"]
