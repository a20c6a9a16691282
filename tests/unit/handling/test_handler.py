"""The outcomes of messages, by the results and exceptions of a handler; without Spark."""

import asyncio
from functools import partial

import numpy as np
import pytest

from pyspark_ignis import batch_handler
from queue_core.handling.handler import HandlerRunner, takes_batches
from queue_core.values.failure_kinds import reason_of
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
)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("true", [True, np.True_])
def test_true_deletes(true):
    assert outcomes(lambda _: true) == [DELETED] * 3


class Asynchronous:
    async def __call__(self, message):
        return True


async def at_last(message):
    await asyncio.sleep(0)
    return message["_message_id"] != 1


def test_a_coroutine_function_is_awaited():
    assert outcomes(at_last) == [DELETED, REJECTED, DELETED]
    assert outcomes(partial(at_last)) == [DELETED, REJECTED, DELETED]
    assert outcomes(Asynchronous()) == [DELETED] * 3


def test_a_coroutine_function_may_raise_and_may_take_batches():
    async def fails(message):
        await asyncio.sleep(0)
        raise Declined("no funds")

    @batch_handler
    async def of_batch(batch):
        await asyncio.sleep(0)
        return [True] * batch.num_rows

    assert {kind for _, kind, _ in outcomes(fails)} == {"exception"}
    assert outcomes(of_batch) == [DELETED] * 3


def test_a_coroutine_that_a_plain_function_returns_is_awaited():
    async def slow(message):
        await asyncio.sleep(60 * (message["_message_id"] == 1))
        return True

    @batch_handler
    def of_batch(batch):
        return asyncio.sleep(0, [True] * batch.num_rows)

    assert outcomes(lambda message: at_last(dict(message))) == [DELETED, REJECTED, DELETED]
    assert outcomes(lambda message: slow(dict(message)), timeout=1) == [
        DELETED,
        late(1),
        DELETED,
    ]
    assert outcomes(of_batch) == [DELETED] * 3


def test_a_coroutine_that_takes_too_long_is_timed_out():
    async def sleeps(message):
        if message["_message_id"] == 1:
            await asyncio.sleep(60)
        return True

    assert outcomes(sleeps, timeout=1) == [DELETED, late(1), DELETED]


@pytest.mark.parametrize("false", [False, np.False_])
def test_false_sidelines(false):
    assert outcomes(lambda _: false) == [REJECTED] * 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Declined("no funds"), "Declined: no funds"),
        (Declined(), "Declined"),
        (KeyError("customer"), "KeyError: 'customer'"),
        (OSError("no file caf\udce9"), "OSError: no file caf\\udce9"),
        (StopIteration("early"), "StopIteration: early"),
        (Unspeakable(), "Unspeakable: (its message cannot be shown)"),
    ],
)
def test_an_exception_sidelines_with_its_type_and_message(error, reason):
    assert outcomes(raising(error)) == [("sideline", "exception", reason)] * 3
    assert outcomes(batch_handler(raising(error))) == [("sideline", "exception", reason)] * 3


@pytest.mark.parametrize("error", [Declined("x"), DeclinedForGood("x")])
@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_an_ignorable_exception_deletes_with_its_reason(error, mark):
    told = f"{type(error).__name__}: x"

    assert (
        outcomes(mark(raising(error)), ignorable=(Declined,)) == [("delete", "exception", told)] * 3
    )


def test_a_superclass_of_an_ignorable_exception_sidelines():
    handler = raising(Declined("x"))

    assert (
        outcomes(handler, ignorable=(DeclinedForGood,))
        == [("sideline", "exception", "Declined: x")] * 3
    )


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_an_error_that_would_end_the_process_sidelines(error, mark):
    told = [("sideline", "exception", reason_of(error))] * 3
    assert outcomes(mark(raising(error))) == told


@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_the_interrupt_of_a_person_is_raised(mark):
    with pytest.raises(KeyboardInterrupt):
        outcomes(mark(raising(KeyboardInterrupt())))


@pytest.mark.parametrize("strange", [None, 1, "true", 0.0, [True]])
def test_a_result_that_is_not_a_bool_sidelines_with_a_reason(strange):
    told = f"not a bool: the handler returned {type(strange).__name__}"

    assert outcomes(lambda _: strange, on_none="sideline") == [("sideline", "undecided", told)] * 3


UNDECIDED = ("sideline", "undecided", "not a bool: the handler returned NoneType")


def test_after_a_first_result_of_none_no_message_is_handled():
    seen = []

    assert outcomes(lambda message: seen.append(message)) == [UNDECIDED, UNHANDLED, UNHANDLED]
    assert len(seen) == 1


def test_a_none_after_a_decision_sidelines_its_message_alone():
    results = iter([False, None, True])

    assert outcomes(lambda _: next(results)) == [REJECTED, UNDECIDED, DELETED]


@pytest.mark.parametrize(("on_none", "outcome"), [("delete", "delete"), ("sideline", "sideline")])
@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_on_none_is_the_outcome_of_none(on_none, outcome, mark):
    assert [one[0] for one in outcomes(mark(lambda _: None), on_none=on_none)] == [outcome] * 3


def test_a_batch_handler_that_returns_nothing_is_called_once():
    calls = []
    runner = HandlerRunner(batch_handler(calls.append))

    first, second = runner.run_task([messages(), messages()])

    assert len(calls) == 1
    assert first.column("outcome").to_pylist() == ["sideline"] * 3
    assert second.column("outcome").to_pylist() == ["reload"] * 3
    (why,) = set(first.column("_refusal").to_pylist())
    assert why.startswith("the handler list.append returned None")


def test_a_decision_leaves_the_column_of_refusals_empty():
    (settled,) = HandlerRunner(lambda _: True).run_task([messages()])

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


def test_empty_batches_do_not_reach_the_handler():
    assert outcomes(raising(Declined()), messages(0)) == []


def test_an_unmarked_callable_takes_messages_and_any_callable_can_be_marked():
    class Shop:
        def open(self, batch):
            return [True] * batch.num_rows

        __call__ = open

    assert not takes_batches(raising(Declined()))
    for handler in (Shop(), Shop().open, partial(Shop().open), lambda b: [True] * b.num_rows):
        assert takes_batches(batch_handler(handler))
        assert outcomes(batch_handler(handler)) == [DELETED] * 3


def test_a_marked_function_is_still_itself():
    def check(batch):
        return [True] * batch.num_rows

    assert batch_handler(check) is check
