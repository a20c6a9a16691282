"""Durations are numbers, texts or timedeltas, in every verb; what is none of them is refused."""

from datetime import timedelta

import pytest

from queue_core import Breaker, ConsumerPool, Limit, Retry, constant, exponential, limit
from queue_core.errors import BadOption
from tests.dump import backdate
from tests.factories import make_filled, make_queue, orders

#: Each verb with a duration: what it is called, and how it is called with one.
VERBS = {
    "Queue.load timeout": ("timeout", lambda q, given: q.load(orders(1), given)),
    "Queue.load ttl": ("ttl", lambda q, given: q.load(orders(1), ttl=given)),
    "Queue.load hold": ("hold", lambda q, given: q.load(orders(1), hold=given)),
    "Queue.fire": ("timeout", lambda q, given: q.fire(timeout=given)),
    "Queue.get_and_keep": ("timeout", lambda q, given: q.get_and_keep(timeout=given)),
    "Queue.sweep": ("older_than", lambda q, given: q.sweep(given)),
    "Queue.sweep dead_after": ("dead_after", lambda q, given: q.sweep(dead_after=given)),
    "Chosen.reload": ("dead_after", lambda q, given: q.choose("all").reload(dead_after=given)),
    "store.admin.vacuum": ("grace", lambda q, given: q.store.admin.vacuum(grace=given)),
    "store.admin.forget": ("idle", lambda q, given: q.store.admin.forget(idle=given)),
    "store.admin.recover": ("dead_after", lambda q, given: q.store.admin.recover(dead_after=given)),
    "handler_timeout": (
        "handler_timeout",
        lambda q, given: ConsumerPool(q.store, q.name, bool, handler_timeout=given),
    ),
    "constant": ("first", lambda _, given: constant(given)),
    "exponential": ("max", lambda _, given: exponential(1, max=given)),
    "limit": ("window", lambda _, given: limit(per_second=1, window=given)),
    "Breaker": ("max_pause", lambda _, given: Breaker(pause=0.01, max_pause=given)),
}


class WithStore:
    """A queue, with its store."""

    def __init__(self, store):
        self.store = store
        self._queue = make_queue(store)
        self._queue.load(orders(1))

    def __getattr__(self, name):
        return getattr(self._queue, name)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_takes_each_form_and_nothing_else(store, verb):
    name, call = VERBS[verb]
    queue = WithStore(store)

    for given in (30, "30s", "30 seconds", "0.5m", timedelta(seconds=30)):
        # So that nothing waits for a message.
        queue.load(orders(1))
        call(queue, given)
    for given in ("soon", "-1s", timedelta(seconds=-1), True, b"5s"):
        with pytest.raises(BadOption, match=rf"{name}=.*: use seconds or a duration such as"):
            call(queue, given)


def test_a_text_has_its_meaning(store):
    queue = make_filled(store, 5)
    queue.fire("all")
    backdate(store, 1000)

    assert queue.sweep("20m") == 0
    assert queue.sweep("15m") == 5


def test_policies_keep_seconds():
    assert str(Retry(backoff=constant("1m"))) == "Retry(attempts=5, backoff=constant(60))"
    assert Retry.parse("Retry(backoff=exponential('5s', max='1h'))").backoff == exponential(5)
    assert limit(per_second=1, window="10s") == Limit(per_second=1, window=10.0)
    assert str(Breaker(pause="2s", max_pause="1m")) == '{"pause": 2.0, "max_pause": 60.0}'
    assert Breaker.parse('{"pause": "2s"}') == Breaker(pause=2)


def test_a_pool_waits_for_a_text(store):
    queue = make_filled(store, 5)

    with ConsumerPool(store, queue.name, lambda row: True) as pool:
        assert pool.drain("30s")
        with pytest.raises(BadOption, match="timeout='soon'"):
            pool.drain("soon")
        with pytest.raises(BadOption, match="timeout='soon'"):
            pool.stop("soon")


def test_the_longest_settings_overflow_no_time(ignis, store):
    most = timedelta.max
    longest = {"dedup_window": most, "sweep_after": most, "shovel_interval": most, "retry": None}
    queue = make_queue(store, dedup=["number"], log="999999999 days", **longest)

    assert [queue.load(orders(count)).null_count for count in (2, 3)] == [0, 2]
    queue.fire(1)
    assert queue.admin.trim() == 0
    assert ignis("problems").exit_code == 0
