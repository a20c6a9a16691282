"""Shared by the tests of consumer pools: a handler that keeps its messages."""

import threading
from collections import Counter

from tests.waiting import PATIENCE


class Recorder:
    """A handler that keeps its messages, and waits while *open* is clear."""

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
        """Wait until one more call has begun."""
        assert self.entered.acquire(timeout=PATIENCE)
