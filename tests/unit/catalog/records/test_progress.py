"""A listener hears of the work within its context."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from queue_core.catalog.records import progress


def test_only_work_within_the_context_is_told():
    heard = []
    progress.add(1)
    with progress.told_to(lambda *told: heard.append(told)):
        progress.expect(3)
        progress.add(2)
        progress.add(0)
    progress.add(4)

    assert heard == [(0, 3), (2, 0)]


def test_a_thread_with_the_context_tells_too():
    heard = []
    with progress.told_to(lambda done, _: heard.append(done)), ThreadPoolExecutor(1) as pool:
        pool.submit(copy_context().run, progress.add, 3).result()
        pool.submit(progress.add, 5).result()

    assert heard == [3]
