"""`Loop`: its work is repeated, even after an error, until it is stopped."""

import threading

import pytest

from queue_core.support.loop import Loop
from tests.waiting import PATIENCE


class Work:
    """Does what it is given in turn: raises an error, or returns the seconds to wait."""

    def __init__(self, *results):
        self.results = list(results)
        self.done = threading.Event()

    def __call__(self):
        result = self.results.pop(0)
        if not self.results:
            self.done.set()
            self.results = [10 * PATIENCE]
        if isinstance(result, Exception):
            raise result
        return result


def test_it_goes_on_after_an_error_and_ends_when_it_is_stopped(caplog):
    work, ended = Work(0.0, ConnectionError("gone"), None, 0.0), []
    loop = Loop("some work", work, every=0.01, retry=0.02, at_end=lambda: ended.append(1))

    loop.start()
    assert work.done.wait(PATIENCE)
    loop.stop()

    assert not loop._thread.is_alive()
    assert ended == [1]
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["some work: gone; tried again in 0.02 seconds"]
    assert "ignis-some-work" not in [thread.name for thread in threading.enumerate()]


def test_one_without_pauses_rests_after_an_error():
    begun, calls = threading.Event(), []

    def fails():
        calls.append(1)
        begun.set()
        raise ConnectionError("gone")

    loop = Loop("work", fails)
    loop.start()
    assert begun.wait(PATIENCE)
    loop._thread.join(0.1)
    loop.stop()
    assert len(calls) == 1


def test_it_does_nothing_before_its_time_unless_it_is_woken():
    work = Work(10 * PATIENCE)
    loop = Loop("work", work, every=10 * PATIENCE)
    loop.start()
    assert not work.done.wait(0.05)
    loop.wake()
    assert work.done.wait(PATIENCE)
    loop.stop()


def test_its_own_work_may_stop_it():
    loop = Loop("work", lambda: loop.stop())
    loop.start()
    loop._thread.join(PATIENCE)
    assert not loop._thread.is_alive()


def test_one_that_never_started_can_be_stopped():
    Loop("work", lambda: None).stop()


def test_one_whose_start_is_interrupted_ends(monkeypatch):
    """Nobody else would end it: a pool that did not start would keep its queues for ever."""
    loop, start = Loop("work", lambda: None, every=0.01), threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.start()
    loop._thread.join(PATIENCE)
    assert not loop._thread.is_alive()
