"""The gate of one process: which calls it admits, and what it knows of them."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.handling.breaker import Breaker
from queue_core.handling.gate import Gate, Probe, Tally, Window
from queue_core.handling.handler import batch_handler
from queue_core.handling.results import Later
from tests.unit.handling.handler_runs import (
    DELETED,
    UNHANDLED,
    Declined,
    outcomes,
    raising,
    runner_of,
)

FAILED = ("sideline", "exception", "Declined: x")


def batch(count):
    return pa.record_batch({"_message_id": range(count)})


def tripped():
    gate = Gate(Breaker(of=4))
    for _ in range(2):
        assert gate.admits()
        gate.note(1, 1)
    return gate


def stopped(sources=1):
    gate = Gate(Breaker(of=4), sources)
    gate.update(stops=True, exempt=False)
    return gate


@given(st.floats(0.01, 1), st.integers(1, 12), st.lists(st.booleans(), max_size=60))
def test_a_window_is_full_when_the_share_of_the_last_calls_failed(share, of, calls):
    window, known = Window(Breaker(share=share, of=of)), []

    for failed in calls:
        known.append(failed)
        expected = sum(known[-of:]) >= max(math.ceil(share * of), 1)
        assert window.note(1, int(failed)) is expected


@pytest.mark.parametrize(("calls", "failures", "too_many"), [(10, 5, True), (10, 2, False)])
def test_of_many_calls_as_many_of_the_last_failed_as_of_all(calls, failures, too_many):
    assert Window(Breaker(of=4)).note(calls, failures) is too_many


def test_after_too_many_failures_no_call_is_admitted():
    gate = tripped()

    assert gate.stopped
    assert gate.tripped
    assert not gate.admits()
    assert not gate.fires_probe("source")


def test_it_stays_stopped_until_others_know_that_it_tripped():
    gate = tripped()

    assert not gate.update(stops=False, exempt=False)
    assert not gate.admits()
    gate.tripped = False
    assert gate.update(stops=False, exempt=False)
    assert gate.admits()
    # Calls that failed before do not count any more.
    gate.note(1, 1)
    assert gate.admits()


def test_one_message_is_the_probe():
    gate = stopped()
    gate.begin_probe()

    assert gate.fires_probe("source")
    assert not gate.fires_probe("source")
    assert gate.admits()
    assert not gate.admits()
    gate.note(1, 0)
    assert gate.probe is Probe.SUCCEEDED


@pytest.mark.parametrize(("calls", "failures", "result"), [(1, 1, "FAILED"), (0, 0, "UNUSED")])
def test_a_probe_may_fail_or_find_no_call(calls, failures, result):
    gate = stopped()
    # A call that began before it stopped says nothing.
    gate.note(1, 0)
    assert gate.probe is None
    gate.begin_probe()
    assert gate.admits()
    gate.note(calls, failures)
    assert gate.probe is Probe[result]


def test_a_lost_source_is_not_waited_for():
    gate = stopped(sources=2)
    gate.found_nothing("two", lost=True)
    for _ in range(2):
        gate.begin_probe()
        assert not gate.fires_probe("two")
        assert gate.fires_probe("one")
        gate.found_nothing("one")
        assert gate.vacant


@pytest.mark.parametrize("asked", [True, False])
def test_a_source_that_is_lost_after_the_others_were_found_empty_is_not_waited_for(asked):
    gate = stopped(sources=2)
    gate.begin_probe()
    assert gate.fires_probe("one")
    gate.found_nothing("one")
    if asked:
        assert gate.fires_probe("two")

    gate.found_nothing("two", lost=True)

    assert gate.vacant
    assert gate.probe is Probe.UNUSED


def test_a_source_that_is_lost_while_another_one_is_asked_is_not_waited_for():
    gate = stopped(sources=2)
    gate.begin_probe()
    assert gate.fires_probe("one")

    gate.found_nothing("two", lost=True)
    assert gate.probe is Probe.FIRED
    gate.found_nothing("one")

    assert gate.vacant
    assert gate.probe is Probe.UNUSED


def test_a_source_that_was_found_empty_and_is_lost_leaves_the_probe_to_the_others():
    gate = stopped(sources=2)
    gate.begin_probe()
    assert gate.fires_probe("two")
    gate.found_nothing("two")

    gate.found_nothing("two", lost=True)
    assert gate.probe is Probe.WANTED
    assert gate.fires_probe("one")
    gate.found_nothing("two", lost=True)
    assert gate.probe is Probe.FIRED
    gate.found_nothing("one")
    assert gate.vacant


def test_all_sources_are_asked_for_the_message_of_a_probe():
    gate = stopped(sources=2)
    gate.begin_probe()

    assert gate.fires_probe("one")
    gate.found_nothing("one")
    assert not gate.fires_probe("one")
    assert gate.fires_probe("two")
    gate.found_nothing("two")
    assert gate.vacant
    assert gate.probe is Probe.UNUSED

    # By the next probe, there may be messages.
    gate.begin_probe()
    assert gate.fires_probe("one")


def test_a_source_that_is_refused_is_asked_again_and_others_before():
    gate = stopped(sources=2)
    gate.begin_probe()
    assert gate.fires_probe("one")

    # Only who was asked can say so.
    gate.refused("two")
    assert gate.probe is Probe.FIRED
    gate.refused("one")
    assert gate.fires_probe("two")
    gate.found_nothing("two")

    assert not gate.vacant
    assert not gate.fires_probe("two")
    assert gate.fires_probe("one")


def test_one_that_a_person_has_closed_never_stops():
    gate = Gate(Breaker(of=4))
    gate.update(stops=False, exempt=True)
    gate.note(4, 4)

    assert gate.admits()


def test_after_too_many_failures_the_rest_of_a_batch_is_reloaded():
    gate = Gate(Breaker(of=4))

    found = outcomes(raising(Declined("x")), batch(5), gate=gate)
    assert found == [*[FAILED] * 2, *[UNHANDLED] * 3]
    assert outcomes(lambda _: True, batch(1), gate=gate) == [UNHANDLED]


@pytest.mark.parametrize("ignorable", [(), (Declined,)])
def test_rejections_and_ignored_exceptions_do_not_count(ignorable):
    handler = raising(Declined("x")) if ignorable else (lambda _: False)

    found = outcomes(handler, batch(4), gate=Gate(Breaker(of=2)), ignorable=ignorable)
    assert UNHANDLED not in found


def test_a_batch_handler_makes_a_call_per_message_or_none():
    gate = Gate(Breaker(of=4))
    failing = batch_handler(raising(Declined("x")))

    assert outcomes(failing, batch(2), gate=gate) == [FAILED] * 2
    assert outcomes(failing, batch(2), gate=gate) == [UNHANDLED] * 2


@pytest.mark.parametrize("mark", [lambda each: each, batch_handler])
@pytest.mark.parametrize("fails", [False, True])
def test_the_call_of_a_probe_is_noted(mark, fails):
    gate = stopped()
    gate.begin_probe()

    def handler(_):
        if fails:
            raise Declined("x")
        return [True] if mark is batch_handler else True

    assert outcomes(mark(handler), batch(1), gate=gate) == [FAILED if fails else DELETED]
    assert gate.probe is (Probe.FAILED if fails else Probe.SUCCEEDED)


def test_each_task_has_a_gate_and_says_whether_it_has_stopped():
    runner = runner_of(raising(Declined("x")), breaker=Breaker(of=4))

    for _ in range(2):
        tallies = [Tally.of(each) for each in runner.run_task([batch(1), batch(3)])]
        assert tallies == [(1, 1, False), (1, 1, True)]
    assert Tally.sum(tallies) == (2, 2, True)
    assert Tally.sum([]) == (0, 0, False)


def test_a_settlement_of_another_hand_needs_no_kind():
    settled = pa.record_batch({"_message_id": [1, 2], "outcome": ["sideline", "reload"]})

    assert Tally.of(settled) == (1, 0, False)


@pytest.mark.parametrize("mark", [lambda each: each, batch_handler])
def test_a_call_that_puts_messages_off_is_one_that_has_not_failed(mark):
    """In a pool and in a task of Spark, so that a probe closes the breaker in both."""
    gate, later = stopped(), mark(raising(Later(30)))
    gate.begin_probe()

    assert outcomes(later, batch(1), gate=gate) == [("reload",)]
    assert gate.probe is Probe.SUCCEEDED
    (settled,) = runner_of(later, breaker=Breaker(of=4)).run_task([batch(1)])
    assert Tally.of(settled) == (1, 0, False)


def test_messages_that_cannot_be_read_are_no_calls():
    """A probe of such a message says nothing of the service."""
    kinds = ["unreadable", "exception", None]
    settled = pa.record_batch({"outcome": ["sideline", "sideline", "delete"], "kind": kinds})

    assert Tally.of(settled) == (2, 1, False)
    assert Tally.of(settled.slice(0, 1)) == (0, 0, False)
    nothing = pa.record_batch({"outcome": ["delete"], "kind": pa.nulls(1)})
    assert Tally.of(nothing) == (1, 0, False)
