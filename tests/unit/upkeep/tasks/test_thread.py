"""The thread of side tasks, with runners of its own making."""

import threading

import pytest

from queue_core.upkeep.tasks import ran
from queue_core.upkeep.tasks.thread import TaskThread
from tests.waiting import PATIENCE


class Recorder:
    """Stands for a runner and its leader, and notes the calls in order."""

    def __init__(self, failures: int = 0) -> None:
        self.calls: list[object] = []
        self.reached = threading.Event()
        self._failures = failures

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def run_due(self, queues: list[str]) -> None:
        if self._failures:
            self._failures -= 1
            raise OSError("gone")
        self.calls.append(queues)
        if self.calls.count(queues) == 3:
            self.reached.set()


def thread_of(recorder: Recorder, *, sweeps: bool = True, start: float = 0.0) -> TaskThread:
    return TaskThread(
        lambda: (recorder, recorder), lambda: ["orders"], sweeps=sweeps, start=start, look=0.001
    )


@pytest.mark.parametrize("sweeps", [True, False])
def test_it_runs_due_tasks_again_and_again_and_leads_only_if_it_sweeps(sweeps):
    recorder = Recorder()
    thread = thread_of(recorder, sweeps=sweeps)

    thread.start()
    assert recorder.reached.wait(PATIENCE)
    thread.stop()

    assert not thread.is_alive()
    assert recorder.calls[:3] == (["start"] if sweeps else [["orders"]]) + [["orders"]] * 2
    assert recorder.calls[-1] == "stop"
    assert recorder.calls.count("start") == sweeps


def test_an_error_is_logged_and_the_tasks_run_again(monkeypatch, caplog):
    monkeypatch.setattr(ran, "RETRY_SECONDS", 0.001)
    recorder = Recorder(failures=2)
    thread = thread_of(recorder)

    thread.start()
    assert recorder.reached.wait(PATIENCE)
    thread.stop()

    assert [record.getMessage() for record in caplog.records] == [
        "side tasks: gone; tried again in 0.001 seconds"
    ] * 2
    assert recorder.calls.count("start") == 1


def test_one_that_is_stopped_early_makes_nothing():
    recorder = Recorder()
    thread = thread_of(recorder, start=60.0)

    thread.start()
    thread.stop()

    assert recorder.calls == []


def test_one_that_never_started_can_be_stopped():
    thread = thread_of(Recorder())

    thread.stop()

    assert not thread.is_alive()


def test_the_runner_is_made_once():
    recorder = Recorder()
    thread = thread_of(recorder)

    assert thread.prepare() is thread.prepare()
