"""The calls of a handler, when another thread takes over or cancels them."""

import pytest

from queue_core.handling.calls import MessageCalls, Superseded


def decided(calls):
    return list(zip(*(column.to_pylist() for column in calls.verdicts[:3]), strict=True))


def test_a_call_that_is_timed_out_is_decided_and_the_thread_that_makes_it_stops():
    calls = MessageCalls([(n,) for n in range(3)], ())

    def handler(number):
        if number == 1:
            assert calls.time_out(1, "late")
        return True

    with pytest.raises(Superseded):
        calls.run(handler)
    assert not calls.time_out(1, "late")
    calls.run(lambda _: False)
    assert decided(calls) == [
        ("delete", None, None),
        ("sideline", "timeout", "late"),
        ("sideline", "rejected", None),
    ]
    assert not calls.time_out(3, "late")


def test_cancelled_messages_are_reloaded_and_decided_ones_stay_decided():
    calls = MessageCalls([(n,) for n in range(3)], ())

    def handler(number):
        if number == 1:
            assert calls.cancel()
        return True

    with pytest.raises(Superseded):
        calls.run(handler)
    assert [outcome for outcome, _, _ in decided(calls)] == ["delete", "reload", "reload"]
    assert not calls.cancel()
