"""The limit on how long a call of a handler may take."""

import signal
import time

from pyspark_ignis import batch_handler
from queue_core.handlers.deadline import Deadline
from tests.unit.handlers.handler_runs import (
    DELETED,
    late,
    messages,
    outcomes,
)


def _sleep_where_asked(message):
    time.sleep(message["seconds"])
    return True


def test_a_call_that_takes_too_long_is_interrupted_and_the_others_are_not():
    begin = time.monotonic()
    slow = messages(3, seconds=[0.0, 30.0, 0.0])

    assert outcomes(_sleep_where_asked, slow, timeout=0.2) == [
        DELETED,
        late(0.2),
        DELETED,
    ]
    assert time.monotonic() - begin < 5


def test_an_alarm_that_is_nearly_due_goes_off(monkeypatch):
    """A timer that is set to less than a microsecond would be turned off."""
    begun = []
    with Deadline(10.0) as deadline:
        monkeypatch.setattr(signal, "setitimer", lambda _, seconds: begun.append(seconds))
        deadline._alarm(1e-9)
    assert begun[0] >= 1e-6


def test_a_call_that_swallows_its_interruption_is_late():
    def stubborn(_):
        try:
            time.sleep(30)
        except BaseException:  # noqa: BLE001 - as handlers should not
            return True

    assert outcomes(stubborn, messages(1), timeout=0.1) == [late(0.1)]


def test_a_handler_that_catches_exceptions_does_not_catch_the_interruption():
    def retrying(_):
        while True:
            try:
                time.sleep(30)
            except Exception:  # noqa: BLE001 - as handlers do
                continue

    assert outcomes(retrying, messages(1), timeout=0.1) == [late(0.1)]


def test_a_batch_that_takes_too_long_times_out_as_one():
    def slow(batch):
        time.sleep(30)
        return [True] * batch.num_rows

    settled = outcomes(batch_handler(slow), timeout=0.1, ignorable=(Exception,))

    assert settled == [late(0.1)] * 3


def test_no_alarm_stays_set():
    before = signal.getsignal(signal.SIGALRM)
    outcomes(lambda _: True, timeout=0.05)

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_alarm_that_was_set_for_an_earlier_call_leaves_a_later_one_its_time():
    def steady(message):
        time.sleep(message["seconds"])
        return True

    # Together they take longer than one may.
    assert outcomes(steady, messages(4, seconds=[0.15] * 4), timeout=0.4) == [DELETED] * 4
