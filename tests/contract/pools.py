"""What the tests of consumer pools share: a handler that keeps what it is given, and patience."""

import threading
import time
from collections import Counter

PATIENCE = 30.0


class Box:
    """A handler that keeps what it was given, and can be made to wait."""

    def __init__(self, verdict=lambda message: True):
        self.messages = []
        self.threads = Counter()
        self.verdict = verdict
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)

    def __call__(self, message):
        self.entered.release()
        assert self.open.wait(PATIENCE)
        self.messages.append(message)
        self.threads[threading.current_thread().name] += 1
        return self.verdict(message)

    @property
    def numbers(self):
        return sorted(message["number"] for message in self.messages)

    def wait(self):
        """Until a call has begun."""
        assert self.entered.acquire(timeout=PATIENCE)


def eventually(what):
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)
