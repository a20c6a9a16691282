"""Calls that a circuit breaker guards: what is called, what is held back, and what is noted."""

import pyarrow as pa
import pytest

from queue_core.handling.breakers.breaker import Breaker
from queue_core.handling.breakers.gate import Event, Gate
from queue_core.handling.handler import HandlerRunner, batch_handler
from tests.unit.handling.handler_runs import DELETED, UNHANDLED, Declined, outcomes, raising

FAILED = ("sideline", "exception", "Declined: x")


def batch(*tenants):
    return pa.record_batch({"_message_id": range(len(tenants)), "tenant": list(tenants)})


def test_after_too_many_failures_the_rest_is_reloaded():
    gate = Gate(Breaker(of=4))

    assert outcomes(raising(Declined("x")), batch(*"aaaaa"), gate=gate) == [
        *[FAILED] * 2,
        *[UNHANDLED] * 3,
    ]
    assert outcomes(lambda _: True, batch("a"), gate=gate) == [UNHANDLED]


def test_only_the_failing_value_is_held_back():
    def handler(message):
        if message["tenant"] == "b":
            raise Declined("x")
        return True

    found = outcomes(handler, batch(*"abababab"), gate=Gate(Breaker(of=4, by="tenant")))

    assert found == [DELETED, FAILED, DELETED, FAILED, DELETED, UNHANDLED, DELETED, UNHANDLED]


@pytest.mark.parametrize("ignorable", [(), (Declined,)])
def test_rejections_and_ignored_exceptions_do_not_count(ignorable):
    gate = Gate(Breaker(of=2))
    handler = raising(Declined("x")) if ignorable else (lambda _: False)

    assert UNHANDLED not in outcomes(handler, batch(*"aaaa"), gate=gate, ignorable=ignorable)


def test_a_batch_handler_gets_the_messages_that_may_be_handled():
    gate = Gate(Breaker(of=4, by="tenant"))
    gate.update(['"b"', "null"], [])
    seen = []

    @batch_handler
    def handler(messages):
        seen.extend(messages["tenant"].to_pylist())
        return [True, False, True]

    found = outcomes(handler, batch("a", "b", "c", None, "a"), gate=gate)

    assert seen == ["a", "c", "a"]
    rejected = ("sideline", "rejected", None)
    assert found == [DELETED, UNHANDLED, rejected, UNHANDLED, DELETED]


def test_a_batch_without_admitted_messages_reaches_no_handler():
    gate = Gate(Breaker())
    gate.update([""], [])

    assert outcomes(batch_handler(raising(Declined("x"))), batch(*"ab"), gate=gate) == [
        UNHANDLED,
        UNHANDLED,
    ]


def test_a_batch_that_fails_is_a_failure_of_each_of_its_keys():
    gate = Gate(Breaker(of=4, by="tenant"))

    outcomes(batch_handler(raising(Declined("x"))), batch(*"aab"), gate=gate)

    assert gate.stopped == {'"a"'}


def test_the_call_of_a_probe_is_reported():
    for handler, failed in ((lambda _: True, False), (raising(Declined("x")), True)):
        for mark in (lambda each: each, batch_handler):
            gate = Gate(Breaker())
            gate.update([""], [])
            gate.probe("")
            marked = (
                mark(handler)
                if failed or mark is not batch_handler
                else batch_handler(lambda messages: [True] * messages.num_rows)
            )
            outcomes(marked, batch("a"), gate=gate)
            assert gate.events() == [Event("", False, failed)]


def test_each_task_has_a_gate_and_marks_the_keys_that_it_stopped():
    runner = HandlerRunner(raising(Declined("x")), breaker=Breaker(of=4, by="tenant"))

    for _ in range(2):
        first, second = runner.run_task([batch(*"aab"), batch(*"ab")])
        assert first.column("_breaker").to_pylist() == ['!"a"', '!"a"', '"b"']
        assert second.column("outcome").to_pylist() == ["reload", "sideline"]
