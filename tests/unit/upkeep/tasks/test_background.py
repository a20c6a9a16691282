"""The thread of side tasks, with runners of its own making."""

import threading
import time

import pytest

from queue_core.upkeep.tasks import shovel, task
from queue_core.upkeep.tasks.background import TaskThread, retry_thread
from tests.waiting import PATIENCE


class Recorder:
    """Stands for a runner and its leader, and notes the calls in order."""

    def __init__(self, failures: int = 0) -> None:
        self.calls: list[object] = []
        self.reached = threading.Event()
        self._failures = failures

    def start(self) -> None:
        # A leader that has begun to stand for election goes on.
        if "start" not in self.calls:
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

    assert recorder.calls[:3] == (["start"] if sweeps else [["orders"]]) + [["orders"]] * 2
    assert recorder.calls[-1] == "stop"
    assert recorder.calls.count("start") == sweeps


def test_an_error_is_logged_and_the_tasks_run_again(monkeypatch, caplog):
    monkeypatch.setattr(task, "RETRY_SECONDS", 0.001)
    recorder = Recorder(failures=2)
    thread = thread_of(recorder)

    thread.start()
    assert recorder.reached.wait(PATIENCE)
    thread.stop()

    # The second one is of the same outage.
    assert [record.getMessage() for record in caplog.records] == [
        "side tasks: gone; tried again in 0.001 seconds"
    ]
    assert recorder.calls.count("start") == 1


def test_one_that_is_stopped_early_makes_nothing():
    recorder = Recorder()
    thread = thread_of(recorder, start=60.0)
    retries = retry_thread(None, None, None)

    thread.stop()
    thread.start()
    thread.stop()
    retries.stop()

    assert recorder.calls == []
    assert thread.prepare() is thread.prepare()


class Runs:
    """Answers with the time until the next message is due, or raises it."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.done = threading.Event()

    def run(self, names):
        self.asked.append(names)
        answer = self.answers.pop(0)
        if not self.answers:
            self.done.set()
            self.answers = [60.0]
        if isinstance(answer, Exception):
            raise answer
        return [], answer


def test_it_leaves_queues_alone_that_were_just_seen_empty(monkeypatch):
    monkeypatch.setattr("queue_core.upkeep.tasks.background.BLIND_SECONDS", 0.4)
    monkeypatch.setattr("queue_core.upkeep.tasks.background.RETRIES_LOOK_SECONDS", 0.01)
    begun, runs = time.monotonic(), Runs(0.0, 60.0)
    monkeypatch.setattr(shovel, "Retries", lambda *_: runs)
    thread = retry_thread(None, None, ["orders"], start=0.0, quiet=lambda: begun)

    thread.start()
    time.sleep(0.1)
    assert runs.asked == []
    assert runs.done.wait(PATIENCE)
    thread.stop()

    assert time.monotonic() >= begun + 0.4


@pytest.mark.parametrize(
    ("look", "left"), [(10 * PATIENCE, 0.01), (0.01, 10 * PATIENCE)], ids=["due", "none is due"]
)
def test_it_looks_again_when_a_message_is_due_and_soon_if_none_is(monkeypatch, look, left):
    """Also after an error."""
    monkeypatch.setattr("queue_core.upkeep.tasks.background.RETRIES_LOOK_SECONDS", look)
    monkeypatch.setattr("queue_core.upkeep.tasks.background._ERROR_SECONDS", 0.01)
    runs = Runs(0.0, OSError("no disk"), left, left, 60.0)
    monkeypatch.setattr(shovel, "Retries", lambda *_: runs)
    thread = retry_thread(None, None, ["orders"], start=0.0)

    thread.start()
    assert runs.done.wait(PATIENCE)
    thread.stop()

    assert runs.asked[:5] == [["orders"]] * 5
