"""The end of a trace, with the handler's line and without the frames of ignis."""

import sqlite3
import threading

import pytest

from queue_core.handling import traces
from queue_core.handling.deadline import interruptibly
from queue_core.handling.traces import Tracer, trace_of, trace_of_thread
from queue_core.values.failure_kinds import TRACE_LENGTH


def caught(function, *arguments):
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each test looks at its error
        interruptibly(function, *arguments)
    # Without the frame of this function, as if a worker had called the handler.
    return raised.value.with_traceback(raised.tb.tb_next)


def lines_of(trace):
    return [line for line in trace.splitlines() if line.startswith("  File")]


def failing(message):
    return helper(message)


def helper(message):
    raise LookupError(message)


def test_it_begins_with_the_handler():
    trace = trace_of(caught(failing, "no such customer"))

    assert trace.splitlines()[0] == "Traceback (most recent call last):"
    first, last = lines_of(trace)
    assert first.endswith("in failing")
    assert last.endswith("in helper")
    assert trace.endswith("LookupError: no such customer")


def test_an_exception_that_cannot_be_printed_has_a_trace():
    class Wordless(Exception):
        def __str__(self):
            raise AttributeError("no text")

    def handler():
        raise Wordless

    trace = Tracer().trace_of(caught(handler))
    assert trace is not None
    assert lines_of(trace)[0].endswith("in handler")
    assert trace.splitlines()[-1].endswith("Wordless: <exception str() failed>")


def test_frames_of_ignis_stay_if_the_handler_has_called_them():
    def handler():
        interruptibly(sqlite3.connect, None)

    first, second = lines_of(trace_of(caught(handler)))
    assert first.endswith("in handler")
    assert second.endswith("in interruptibly")


def test_causes_come_before_it_and_can_be_suppressed():
    def handler(cause):
        try:
            helper("the cause")
        except LookupError as error:
            raise ValueError("the end") from (error if cause else None)

    with_cause, without = trace_of(caught(handler, True)), trace_of(caught(handler, False))
    assert (
        with_cause.index("the cause")
        < with_cause.index("direct cause")
        < with_cause.index("the end")
    )
    assert "the cause" not in without


def test_a_group_shows_its_parts():
    def handler():
        raise ExceptionGroup("both", [LookupError("first"), ValueError("second")])

    trace = trace_of(caught(handler))
    assert trace.index("first") < trace.index("second") < trace.index("both (2 sub-exceptions)")


def deep(depth, message):
    if depth:
        # Each on a line of its own, so that Python shows each.
        return [deep, deeper][depth % 2](depth - 1, message)
    raise ValueError(message)


def deeper(depth, message):
    return deep(depth - 1, message) if depth else helper(message)


@pytest.mark.parametrize(
    "message",
    ["short", "x" * 100_000, "first\n" * 5000, "\ud800"],
    ids=["short", "long", "lines", "invalid"],
)
def test_the_ends_of_a_deep_one_are_kept(message):
    def handler():
        return deep(200, message)

    trace = trace_of(caught(handler))
    assert len(trace) <= TRACE_LENGTH
    assert lines_of(trace)[0].endswith("in handler")
    assert "frames are left out" in trace
    trace.encode()


def test_the_end_of_a_long_chain_is_kept():
    def handler(left=30):
        try:
            helper("x" * 1000)
        except LookupError as error:
            if left:
                handler(left - 1)
            raise ValueError("the end") from error

    trace = trace_of(caught(handler))
    assert len(trace) <= TRACE_LENGTH
    assert trace.startswith("…\n")
    assert trace.endswith("ValueError: the end")


def test_a_thread_is_where_the_handler_is():
    entered, end = threading.Event(), threading.Event()

    def handler():
        entered.set()
        end.wait(60)

    thread = threading.Thread(target=interruptibly, args=(handler,))
    thread.start()
    entered.wait(60)
    try:
        assert lines_of(trace_of_thread(thread))[0].endswith("in handler")
    finally:
        end.set()
        thread.join()
    assert trace_of_thread(thread) is None


def test_a_tracer_makes_one_of_each_line_and_text_and_one_of_each_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(traces.time, "monotonic", lambda: now[0])
    tracer = Tracer()
    one, same, other = (caught(failing, text) for text in ("no 1", "no 2", "not 'a'"))

    assert tracer.trace_of(one).endswith("no 1")
    assert tracer.trace_of(same) is None
    assert tracer.trace_of(other).endswith("not 'a'")
    assert tracer.trace_of(caught(deep, 0, "no 3")).endswith("no 3")
    now[0] += traces.EVERY_SECONDS
    assert tracer.trace_of(same).endswith("no 2")
    assert tracer.trace_of(ValueError("never raised")) is None
    # Each minute of the log has the first failure of each cause, with its trace.
    now[0] += traces.ANEW_SECONDS
    again = [tracer.trace_of(each) for each in (one, same, other, caught(deep, 0, "no 3"))]
    assert [trace and trace.split()[-1] for trace in again] == ["1", None, "'a'", "3"]


def test_a_flood_costs_few_traces_and_hides_no_new_text_for_long():
    tracer = Tracer()
    known = caught(failing, "no 1")
    assert [tracer.trace_of(known) is None for _ in range(500)].count(False) == 1
    new = caught(failing, "another cause")
    found = [tracer.trace_of(new) for _ in range(traces.PASSED + 1)]
    assert len([trace for trace in found if trace]) == 1

    texts = [caught(failing, "x" * n) for n in range(3 * traces.MOST_TEXTS)]
    told = [trace for trace in map(tracer.trace_of, texts) if trace]
    assert len(told) < traces.MOST_TEXTS


def test_an_exception_that_cannot_be_shown_raises_no_other():
    class Odd(Exception):
        def __str__(self):
            raise ValueError("no text")

        @property
        def __notes__(self):
            raise ValueError("no notes")

    def handler():
        raise Odd

    Tracer().trace_of(caught(handler))
