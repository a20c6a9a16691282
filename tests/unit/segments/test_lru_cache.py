"""The cache that evicts the least recently used entries."""

import signal
import threading
import time

import pytest

from queue_core.segments.lru_cache import LruCache
from tests.forks import in_a_fork
from tests.waiting import all_at_once


def test_the_least_recently_used_entries_are_evicted_first():
    cache = LruCache(10, len)
    for key in "abc":
        cache.update(key, lambda old: "xxx")
    assert cache.get("a") == "xxx"
    cache.update("d", lambda old: "xxx")
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    assert len(cache) == 3


def test_a_changed_value_counts_with_its_new_size_and_as_used():
    cache = LruCache(10, len)
    cache.update("a", lambda old: "xxx")
    cache.update("b", lambda old: "xxx")
    assert cache.update("a", lambda old: old + "yy") == "xxxyy"
    cache.update("c", lambda old: "xx")
    assert [cache.get(key) for key in "abc"] == ["xxxyy", "xxx", "xx"]
    cache.update("d", lambda old: "x")
    assert cache.get("a") is None


def test_a_value_that_is_forgotten_takes_no_room():
    cache = LruCache(6, len)
    for key in "ab":
        cache.update(key, lambda old: "xxx")
    cache.forget("a")
    cache.forget("none")
    cache.update("c", lambda old: "xxx")
    assert [cache.get(key) for key in "abc"] == [None, "xxx", "xxx"]


def test_a_value_that_exceeds_the_capacity_is_returned_and_not_kept():
    cache = LruCache(3, len)
    assert cache.update("a", lambda old: "xxxx") == "xxxx"
    assert (cache.get("a"), len(cache)) == (None, 0)


def test_no_update_of_another_thread_is_lost():
    cache = LruCache(1 << 20, lambda value: 1)

    def count():
        for _ in range(1000):
            cache.update("a", lambda old: (old or 0) + 1)

    all_at_once(*[count] * 4)
    assert cache.get("a") == 4000


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_is_forked_while_another_thread_changes_it_can_use_it():
    cache, begun = LruCache(10), threading.Event()

    def change(_):
        begun.set()
        time.sleep(0.2)
        return "new"

    def work():
        # It ends rather than wait for ever.
        signal.alarm(30)
        return cache.get("a")

    thread = threading.Thread(target=cache.update, args=("a", change))
    thread.start()
    begun.wait()
    assert in_a_fork(work) == "new"
    thread.join()
