"""The limit on how long a call of a handler may take."""

import asyncio
import signal
import threading
import time
from functools import partial

import pytest

from pyspark_ignis import batch_handler
from queue_core.handling import deadline
from queue_core.handling.deadline import Deadline, TimedOut, interruptibly
from tests.clocks import Stopwatch
from tests.unit.handling.handler_runs import DELETED, late, messages, outcomes

#: Longer than a test may last.
FOR_EVER = 3600.0


def _sleep_where_asked(message):
    time.sleep(message["seconds"])
    return True


def test_a_call_that_takes_too_long_is_interrupted_and_the_others_are_not():
    slow = messages(3, seconds=[0.0, FOR_EVER, 0.0])

    assert outcomes(_sleep_where_asked, slow, timeout=0.5) == [
        DELETED,
        late(0.5),
        DELETED,
    ]


def test_an_alarm_that_is_nearly_due_goes_off(monkeypatch):
    """A timer that is set to less than a microsecond would be turned off."""
    begun = []
    with Deadline(10.0) as calls:
        monkeypatch.setattr(signal, "setitimer", lambda _, seconds: begun.append(seconds))
        calls._alarm(1e-9)
    assert begun[0] >= 1e-6


def test_a_call_that_swallows_its_interruption_is_late():
    def stubborn(_):
        try:
            time.sleep(FOR_EVER)
        except BaseException:  # noqa: BLE001 - as handlers should not
            return True

    assert outcomes(stubborn, messages(1), timeout=0.1) == [late(0.1)]


def test_a_handler_that_catches_exceptions_does_not_catch_the_interruption():
    def retrying(_):
        while True:
            try:
                time.sleep(FOR_EVER)
            except Exception:  # noqa: BLE001 - as handlers do
                continue

    assert outcomes(retrying, messages(1), timeout=0.1) == [late(0.1)]


def test_a_batch_that_takes_too_long_times_out_as_one():
    def slow(batch):
        time.sleep(FOR_EVER)
        return [True] * batch.num_rows

    settled = outcomes(batch_handler(slow), timeout=0.1, ignorable=(Exception,))

    assert settled == [late(0.1)] * 3


def test_no_alarm_stays_set():
    before = signal.getsignal(signal.SIGALRM)
    outcomes(lambda _: True, timeout=0.05)

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_alarm_that_was_set_for_an_earlier_call_leaves_a_later_one_its_time(monkeypatch):
    """By a clock that the test moves, and alarms that go off when it says."""
    watch, alarms = Stopwatch(monkeypatch, deadline), []
    monkeypatch.setattr(signal, "setitimer", lambda _, seconds: alarms.append(seconds))

    def takes(seconds, *, alarm=False):
        watch.now += seconds
        if alarm:
            signal.raise_signal(signal.SIGALRM)
        return True

    with Deadline(10.0) as calls:
        assert calls.call(takes, 6.0)
        assert alarms == [10.0]
        # Since 106; the alarm of the first call is due at 110.
        assert calls.call(lambda: takes(4.0, alarm=True))
        assert alarms == [10.0, 6.0]
        # The alarm that was set again is due between two calls, or in a third one.
        with pytest.raises(TimedOut):
            calls.call(lambda: takes(10.0, alarm=True))


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


class Charge:
    async def __call__(self, value: int) -> bool:
        return value > 0


def plain(value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (partial(double, 1), 2),
        (partial(double, 2), 4),
        (partial(Charge(), 1), True),
        (lambda: double(3), 6),
        (partial(plain, 1), 1),
    ],
)
def test_each_call_runs_to_its_end(call, result):
    assert interruptibly(call) == result


def test_a_call_of_a_class_makes_an_object():
    assert isinstance(interruptibly(Charge), Charge)


def test_an_exception_reaches_the_caller():
    async def fail() -> None:
        raise ValueError("declined")

    with pytest.raises(ValueError, match="declined"):
        interruptibly(fail)


def test_a_thread_without_a_loop_can_call_it():
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(interruptibly(double, 21)))
    thread.start()
    thread.join()

    assert results == [42]


def test_tasks_that_a_call_leaves_are_cancelled_with_it():
    ended: list[str] = []

    async def leave() -> bool:
        async def forever() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        task = asyncio.get_running_loop().create_task(forever())
        await asyncio.sleep(0)
        return not task.done()

    assert interruptibly(leave) is True
    assert ended == ["cancelled"]
