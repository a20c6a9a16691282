"""The thread for retries: it looks often enough, survives errors, and ends."""

import threading

import pytest

from queue_core.upkeep.tasks.retry_thread import retry_thread
from tests.waiting import PATIENCE


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


@pytest.mark.parametrize(
    ("look", "left"), [(10 * PATIENCE, 0.01), (0.01, 10 * PATIENCE)], ids=["due", "none is due"]
)
def test_it_looks_again_when_a_message_is_due_and_soon_if_none_is(monkeypatch, look, left):
    monkeypatch.setattr("queue_core.upkeep.tasks.retry_thread.LOOK_SECONDS", look)
    runs = Runs(0.0, left, left, 60.0)
    thread = retry_thread(lambda: runs, lambda: ["orders"], start=0.0)

    thread.start()
    assert runs.done.wait(PATIENCE)
    thread.stop()

    assert runs.asked[:4] == [["orders"]] * 4


def test_an_error_does_not_end_it(monkeypatch):
    monkeypatch.setattr("queue_core.upkeep.tasks.retry_thread._ERROR_SECONDS", 0.01)
    runs = Runs(OSError("no disk"), 0.0, 60.0)
    thread = retry_thread(lambda: runs, lambda: None, start=0.0)

    thread.start()
    assert runs.done.wait(PATIENCE)
    thread.stop()


def test_it_is_stopped_before_it_has_begun():
    thread = retry_thread(Runs, lambda: None)
    thread.stop()
