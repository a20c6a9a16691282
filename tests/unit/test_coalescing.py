"""Coalescing: one thread works for several."""

import threading

import pytest

from queue_core.coalescing import Coalescer
from tests.waiting import PATIENCE

EVENT = threading.Event


def test_one_thread_works_for_all_that_have_requested_it_meanwhile():
    requested, begun, go_on = [], threading.Event(), threading.Event()

    def work(requests):
        requested.append(sorted(requests))
        begun.set()
        assert go_on.wait(PATIENCE)
        return [10 * request for request in requests]

    coalescer = Coalescer(work, threading.Lock())
    results = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: coalescer(n)})) for n in range(6)
    ]
    threads[0].start()
    assert begun.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    while coalescer.waiting < 5:
        go_on.wait(0.001)
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)

    assert requested == [[0], [1, 2, 3, 4, 5]]
    assert results == {n: 10 * n for n in range(6)}
    assert coalescer(7) == 70


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


def test_coalescers_that_share_an_exclusion_do_not_work_at_once():
    exclusion = threading.Lock()

    def work(requests):
        assert exclusion.locked()
        return requests

    assert [Coalescer(work, exclusion)(n) for n in (1, 2)] == [1, 2]


def test_a_request_that_is_interrupted_while_it_waits_is_withdrawn():
    requested, begun, go_on = [], threading.Event(), threading.Event()

    def work(requests):
        requested.append(list(requests))
        begun.set()
        assert go_on.wait(PATIENCE)
        return requests

    coalescer = Coalescer(work, threading.Lock())
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(coalescer(n))) for n in (0, 2)]
    threads[0].start()
    assert begun.wait(PATIENCE)

    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            threads[1].start()
            while coalescer.waiting < 2:
                go_on.wait(0.001)
            # The first one ends, and appoints the request that waits here.
            go_on.set()
            assert super().wait(PATIENCE)
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        made = []

        def event():
            # Of this thread, and not of others that are there.
            if made or threading.current_thread() is not threading.main_thread():
                return EVENT()
            made.append(Interrupted())
            return made[-1]

        patch.setattr("queue_core.coalescing.threading.Event", event)
        with pytest.raises(KeyboardInterrupt):
            coalescer(1)
    for thread in threads:
        thread.join(PATIENCE)

    assert requested == [[0], [2]]
    assert sorted(results) == [0, 2]
    assert coalescer(3) == 3
