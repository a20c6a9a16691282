"""Interrupts of handlers: once, in the call that is late, and never within a shielded method."""

import gc
import threading
import time

import pytest

from queue_core.handling.deadline import interruptibly
from queue_core.support.interruption import Interruptible, TimedOut, bind, check, here, shielded
from tests.waiting import PATIENCE


@shielded
class Surface:
    """A class as those of the public surface."""

    def __init__(self):
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.ended = []

    def work(self, name="work"):
        """Work until the test says."""
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        self.ended.append(name)
        return name

    def outer(self):
        self.work("inner")
        self.ended.append("outer")

    def fail(self):
        self.work("failed")
        raise ValueError("no funds")

    @classmethod
    def quick(cls):
        return cls.__name__

    def __enter__(self):
        self.work("entered")

    def __exit__(self, *_):
        self.ended.append("left")

    def waits(self):
        self.begun.set()
        while True:
            check()
            time.sleep(0.001)


class Caller:
    """A thread that makes one call, and what became of it."""

    def __init__(self, function):
        self.calls = Interruptible()
        self.result = self.error = self.late = None
        self._function = function
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        bind(self.calls)
        try:
            self.result = interruptibly(self._function)
        except BaseException as error:  # noqa: BLE001 - as the pool sees it
            self.error = error
        # What comes after the call is never interrupted.
        for _ in range(1000):
            time.sleep(0)

    def join(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.error


def test_a_method_keeps_its_name_its_texts_and_its_result():
    assert Surface.work.__doc__ == "Work until the test says."
    assert Surface.quick() == "Surface"
    surface = Surface()
    surface.go_on.set()
    assert (here(), surface.work()) == (None, "work")


def test_code_of_the_handler_is_interrupted_wherever_it_is():
    begun = threading.Event()

    def busy():
        begun.set()
        while True:
            time.sleep(0.001)

    caller = Caller(busy)
    assert begun.wait(PATIENCE)
    caller.calls.interrupt(TimedOut("late"))
    assert isinstance(caller.join(), TimedOut)


@pytest.mark.parametrize(
    ("call", "ended"),
    [
        (lambda surface: surface.work(), ["work"]),
        (lambda surface: surface.outer(), ["inner", "outer"]),
        (lambda surface: surface.fail(), ["failed"]),
    ],
)
def test_a_shielded_method_ends_first(call, ended):
    surface, after = Surface(), []

    def handler():
        call(surface)
        after.append("not reached")

    caller = Caller(handler)
    assert surface.begun.wait(PATIENCE)
    caller.calls.interrupt(TimedOut("late"))
    time.sleep(0.01)
    assert caller.thread.is_alive()
    surface.go_on.set()
    assert str(caller.join()) == "late"
    assert (surface.ended, after) == (ended, [])


def test_a_method_that_waits_ends_where_nothing_is_half_done():
    surface = Surface()
    caller = Caller(surface.waits)
    assert surface.begun.wait(PATIENCE)
    caller.calls.interrupt(TimedOut("late"))
    assert str(caller.join()) == "late"


def test_what_cleans_up_after_an_interrupt_is_not_interrupted_again():
    begun, cleaned = threading.Event(), Surface()
    cleaned.go_on.set()

    def handler():
        try:
            begun.set()
            while True:
                time.sleep(0.001)
        finally:
            cleaned.work("reloaded")
            cleaned.work("released")

    caller = Caller(handler)
    assert begun.wait(PATIENCE)
    caller.calls.interrupt(TimedOut("late"))
    assert isinstance(caller.join(), TimedOut)
    assert cleaned.ended == ["reloaded", "released"]


def test_between_two_calls_nothing_is_interrupted():
    calls = Interruptible()
    other = threading.Thread(target=calls.interrupt, args=(TimedOut(),))
    others = bind(calls)
    try:
        other.start()
        other.join(PATIENCE)
        assert interruptibly(lambda: 7) == 7
    finally:
        bind(others)


@pytest.fixture
def no_collections():
    """Python only logs what a callback of its garbage collector raises; Hypothesis has one."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
def test_an_interrupt_never_comes_after_its_call_or_within_a_shielded_method():
    """At random moments of short calls, some of which are in a shielded method."""
    ended, escaped, torn = threading.Event(), [], []
    counts = {"calls": 0, "late": 0}
    calls = Interruptible()

    @shielded
    class Halves:
        first = second = 0

        def add(self):
            self.first += 1
            for _ in range(3):
                self.first, self.second = self.first, self.second
            self.second += 1

    halves = Halves()

    def handler():
        for _ in range(5):
            halves.add()
            sum(range(20))

    def work():
        bind(calls)
        try:
            while not ended.is_set():
                counts["calls"] += 1
                try:
                    interruptibly(handler)
                except TimedOut:
                    counts["late"] += 1
                if halves.first != halves.second:
                    torn.append((halves.first, halves.second))
                    halves.first = halves.second
        except BaseException as error:  # noqa: BLE001 - it must not happen
            escaped.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + 1
    while time.monotonic() < end and thread.is_alive():
        calls.interrupt(TimedOut())
        time.sleep(0)
    ended.set()
    thread.join(PATIENCE)
    assert (escaped, torn) == ([], [])
    assert counts["late"] > 10
    assert counts["calls"] > counts["late"]
