"""Coalescing: one thread works for several."""

import signal
import threading
import time

import pytest

from queue_core.support.coalescing import Coalescer
from queue_core.support.interruption import _raise_in
from tests.waiting import PATIENCE, until


def test_an_error_is_raised_for_all_that_requested_it_and_for_none_later():
    fails = [True]

    def work(requests):
        if fails.pop() if fails else False:
            raise OSError("disk")
        return requests

    coalescer = Coalescer(work, threading.Lock())
    with pytest.raises(OSError, match="disk"):
        coalescer(1)
    assert coalescer(2) == 2


def interrupt_the_main_thread():
    """As Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_the_main_thread_that_is_interrupted_while_it_waits_requests_nothing():
    requested, begun, go_on = [], threading.Event(), threading.Event()

    def work(requests):
        requested.append(list(requests))
        begun.set()
        if requests == [0]:
            assert go_on.wait(PATIENCE)
        return requests

    coalescer = Coalescer(work, threading.Lock())
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(coalescer(n))) for n in (0, 2)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads[1].start()
    ctrl_c = threading.Timer(0.1, interrupt_the_main_thread)
    ctrl_c.start()
    with pytest.raises(KeyboardInterrupt):
        coalescer(1)
    go_on.set()
    for thread in [*threads, ctrl_c]:
        thread.join(PATIENCE)

    assert requested == [[0], [2]]
    assert sorted(results) == [0, 2]
    assert coalescer(3) == 3


@pytest.mark.parametrize("where", ["work", "result"])
def test_the_main_thread_that_is_interrupted_at_work_harms_no_other(where):
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(coalescer(n))) for n in range(4)]

    def work(requests):
        if requests == ["main"]:
            for thread in threads:
                thread.start()
            while len(coalescer._waiting) < len(threads) - 1:
                time.sleep(0.001)
            if where == "work":
                interrupt_the_main_thread()
                time.sleep(PATIENCE)
            # After the work, where the result is handed on.
            return Interrupting()
        return requests

    class Interrupting:
        def __getitem__(self, _):
            interrupt_the_main_thread()
            time.sleep(PATIENCE)

    coalescer = Coalescer(work, threading.Lock())
    with pytest.raises(KeyboardInterrupt):
        coalescer("main")
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(results) == list(range(4))


def test_a_thread_that_is_interrupted_while_it_waits_leads_those_behind_it():
    """As libraries do that limit the time of a call in a thread."""
    begun, go_on, results = threading.Event(), threading.Event(), {}

    def work(requests):
        if requests == [0]:
            begun.set()
            assert go_on.wait(PATIENCE)
            _raise_in(threads[1].ident, InterruptedError)
        return requests

    def run(number):
        try:
            results[number] = coalescer(number)
        except InterruptedError as error:
            results[number] = type(error)

    coalescer = Coalescer(work, threading.Lock())
    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(3)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        until(lambda number=number: len(coalescer._waiting) == number)
    # Python raises it when the thread is woken.
    time.sleep(0.1)
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)

    assert results == {0: 0, 1: InterruptedError, 2: 2}
