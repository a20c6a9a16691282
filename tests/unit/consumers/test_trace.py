"""Traces: recorded while open, and printed as a numbered list."""

from queue_core.consumers.trace import Step, record, tracing


def test_steps_are_recorded_while_a_trace_is_open():
    record(Step.ARRIVED, "before")
    with tracing() as trace:
        record(Step.ARRIVED, "orders")
        record(Step.QUEUE_NOTIFIES_CONSUMER, "orders")
    record(Step.DELIVERED, "after")

    assert trace.steps == [Step.ARRIVED, Step.QUEUE_NOTIFIES_CONSUMER]
    assert {taken.actor for taken in trace.taken} == {"orders"}


def test_a_second_trace_takes_the_place_of_the_first():
    with tracing() as first:
        record(Step.ARRIVED, "one")
        with tracing() as second:
            record(Step.ARRIVED, "two")

    assert [taken.actor for taken in first.taken] == ["one"]
    assert [taken.actor for taken in second.taken] == ["two"]


def test_a_trace_is_printed_with_one_line_per_step():
    with tracing() as trace:
        record(Step.ARRIVED, "orders")
        record(Step.DELIVERED, "worker 1")

    assert str(trace).splitlines() == [
        " 1. orders: arrived [MainThread]",
        "12. worker 1: delivered [MainThread]",
    ]
