"""A paused queue gives nothing to anybody: paused by a person, or by its setting `concurrency`."""

import time

import pytest

from queue_core import ConsumerPool
from queue_core.errors import BadOption, QueueDeactivated
from tests.command_line import answer, refusal
from tests.contract.pools import Recorder
from tests.factories import make_queue, numbers_of, orders
from tests.waiting import PATIENCE, Caller, until

pytestmark = pytest.mark.usefixtures("quick_beats")


class Pause:
    """A way to pause a queue, as another process does."""

    def __init__(self, store, by_setting):
        self._store, self._by_setting = store, by_setting

    def begin(self):
        queue = self._store.queue("orders")
        queue.admin.change_settings(concurrency=0) if self._by_setting else queue.admin.pause()

    def end(self):
        queue = self._store.queue("orders")
        queue.admin.change_settings(concurrency=2) if self._by_setting else queue.admin.resume()


@pytest.fixture(params=[False, True], ids=["by a person", "by its setting"])
def pause(request, store, queue):
    return Pause(store, request.param)


#: The gate has pauses by a person, where both kinds end in the same state of the queue.
by_a_person = pytest.mark.parametrize(
    "pause",
    [
        pytest.param(False, id="by a person"),
        pytest.param(True, id="by its setting", marks=pytest.mark.nightly),
    ],
    indirect=True,
)


def paused_at(store):
    return store.view("queues", "orders").column("paused_at").to_pylist()[0]


def test_a_paused_queue_fires_nothing_and_takes_loads_and_settlements(queue, pause):
    queue.load(orders(5))
    firing = queue.fire(3)
    pause.begin()
    queue.load(orders(3, 5))

    assert len(queue.fire("all")) == 0
    assert len(queue.fire("all", selector="number = 3")) == 0
    assert len(queue.get_and_keep("all")) == 0
    assert queue.peek(10).num_rows == 5
    assert queue.delete(firing.ids[:1]) == 1
    assert queue.sideline(firing.ids[1:2]) == 1
    assert queue.reload(firing.ids[2:]) == 1
    assert len(queue.fire("all", magazine="sideline")) == 0
    assert queue.shovel() == 1
    assert len(queue.fire(1, even_if_paused=True)) == 1

    pause.end()
    assert sorted(numbers_of(queue.fire("all").messages)) == [1, 3, 4, 5, 6, 7]


def test_a_pause_is_not_a_setting_and_keeps_its_time(store, queue):
    assert paused_at(store) is None
    queue.admin.pause()
    first = paused_at(store)
    queue.admin.pause()

    assert paused_at(store) == first is not None
    assert queue.info.is_paused
    assert queue.refresh().info.settings.concurrency == 8
    queue.admin.change_settings(concurrency=3)
    assert len(queue.load(orders(1))) == 1
    assert len(queue.fire()) == 0

    queue.admin.change_settings(concurrency=0)
    queue.admin.resume()
    queue.admin.resume()
    assert paused_at(store) is None
    assert queue.info.is_paused, "by its setting"
    assert len(queue.fire()) == 0
    queue.admin.change_settings(concurrency=3)
    assert not queue.info.is_paused
    assert len(queue.fire()) == 1


@pytest.mark.parametrize("how", [{}, {"selector": "number >= 0"}])
def test_a_firing_that_waits_goes_on_when_the_pause_ends(queue, pause, how):
    queue.load(orders(3))
    pause.begin()
    waiting = Caller(lambda: queue.fire("all", timeout=PATIENCE, **how))
    waiting.join(0.3)
    assert waiting.is_alive()

    pause.end()
    assert len(waiting.done()) == 3


@by_a_person
def test_a_wait_for_a_paused_queue_is_no_busy_loop(queue, pause, monkeypatch):
    queue.load(orders(3))
    pause.begin()
    looks, read = [], queue.store.catalog.read
    monkeypatch.setattr(queue.store.catalog, "read", lambda **how: looks.append(1) or read(**how))
    assert len(queue.fire("all", timeout=1.0)) == 0
    assert len(looks) < 20


@pytest.mark.parametrize("concurrency", [None, pytest.param(3, marks=pytest.mark.nightly)])
def test_a_pause_stops_a_running_pool_and_its_end_starts_it_again(
    store, queue, pause, caplog, concurrency
):
    with ConsumerPool(store, "orders", Recorder(), concurrency=concurrency) as pool:
        queue.load(orders(3))
        until(lambda: pool.counts == {"deleted": 3})
        pause.begin()
        until(lambda: "orders paused" in repr(pool))
        queue.load(orders(3, 3))
        assert not pool.drain(0.2)
        assert "drain waits, since queue 'orders' is paused" in caplog.text
        assert pool.counts == {"deleted": 3}

        pause.end()
        until(lambda: pool.counts["deleted"] == 6)
        assert pool.drain(PATIENCE)


@by_a_person
def test_messages_that_were_fired_ahead_return_when_the_queue_is_paused(store, queue, pause):
    recorder = Recorder()
    waiting = lambda: store.view("queues")["waiting"][0].as_py()  # noqa: E731
    queue.load(orders(2000))
    with ConsumerPool(store, "orders", recorder, concurrency=1, batch=10) as pool:
        until(lambda: pool.counts.get("deleted", 0) > 500)
        recorder.open.clear()
        pause.begin()
        until(lambda: "orders paused" in repr(pool))
        # All but the batch in hand wait again, or are handled.
        until(lambda: waiting() + len(recorder.messages) >= 2000 - 10)
        seen = len(recorder.messages)
        recorder.open.set()
        time.sleep(0.5)
        # The rest of the batch in hand.
        assert len(recorder.messages) <= seen + 10


@by_a_person
def test_one_paused_queue_of_a_pool_does_not_stop_the_other(store, queue, pause):
    other = make_queue(store, "other")
    pause.begin()
    with ConsumerPool(store, ["orders", "other"], Recorder()) as pool:
        for each in (queue, other):
            each.load(orders(3))
        until(lambda: pool.counts == {"deleted": 3})
        assert [queue.browse().num_rows, other.browse().num_rows] == [3, 0]
        pause.end()
        until(lambda: pool.counts["deleted"] == 6)
        assert pool.drain(PATIENCE)


def test_a_pool_follows_the_queue_unless_it_has_a_number_of_its_own(store, queue):
    queue.admin.change_settings(concurrency=4)
    with (
        ConsumerPool(store, "orders", Recorder()) as follows,
        ConsumerPool(store, "orders", Recorder(), concurrency=3) as fixed,
        ConsumerPool(store, "orders", Recorder()) as scaled,
    ):
        assert scaled.increase() == 5
        for number in (1, 7):
            queue.admin.change_settings(concurrency=number)
            until(lambda number=number: follows.concurrency == number)

        assert (fixed.concurrency, scaled.concurrency) == (3, 5)


def test_drain_of_a_pool_without_workers_says_so(store, queue, caplog):
    queue.load(orders(3))
    with ConsumerPool(store, "orders", Recorder(), concurrency=0) as pool:
        assert not pool.drain(0.1)
        assert "the pool of queue 'orders' has no workers" in caplog.text
        pool.increase()
        assert pool.drain(PATIENCE)


def test_only_a_whole_queue_in_use_is_paused(store, queue):
    with pytest.raises(BadOption, match="needs the whole queue"):
        store.queue("orders_SIDELINE").admin.pause()
    queue.admin.deactivate()
    for change in (queue.admin.pause, queue.admin.resume):
        with pytest.raises(QueueDeactivated):
            change()


def test_the_command_line_pauses_and_resumes(ignis, store, queue):
    assert answer(ignis("--json", "pause", "orders")) == [{"queue": "orders", "paused": True}]
    assert answer(ignis("--json", "queues"))[0]["paused_at"] is not None
    assert ignis("resume", "orders").stdout == "queue orders is resumed\n"
    queue.admin.change_settings(concurrency=0)
    assert answer(ignis("--json", "resume", "orders")) == [{"queue": "orders", "paused": True}]
    assert "no queue 'order'" in refusal(ignis("pause", "order"))
