"""Looks for Airflow's triggers: one thread for each store takes nothing, and ends with them."""

import asyncio
import threading
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from operator import attrgetter

import pyarrow as pa
import pytest
import sqlalchemy as sa

from ignis_airflow import look as looking
from ignis_airflow.look import Arrivals, QueueLook
from ignis_airflow.watcher import look, looks
from queue_core import Retry, Store, constant
from queue_core.support.loop import Loop
from queue_core.values.address import Address
from tests.children import Child
from tests.statements import heard
from tests.waiting import PATIENCE, until

SCHEMA = pa.schema([("id", pa.int64())])


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "ignis-airflow"]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    until(lambda: not threads(), "the thread of the looks goes on")


async def soon(found: asyncio.Queue[QueueLook]) -> QueueLook:
    return await asyncio.wait_for(found.get(), PATIENCE)


async def nothing(found: asyncio.Queue[QueueLook], seconds: float = 0.8) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(found.get(), seconds)


def test_messages_are_reported_and_stay(store):
    orders, refunds = (store.create_queue(name, SCHEMA) for name in ("orders", "refunds"))

    async def main() -> None:
        with (
            looks(store.address, "orders", Arrivals()) as of_orders,
            looks(store.address, "refunds", Arrivals()) as of_refunds,
        ):
            await nothing(of_orders, 0.5)
            orders.load([{"id": 1}, {"id": 2}])
            assert (await soon(of_orders)).waiting == 2
            assert of_refunds.empty()
            refunds.load([{"id": 3}])
            assert (await soon(of_refunds)).waiting == 1
            await nothing(of_orders, 0.5)

    asyncio.run(main())

    assert len(orders.fire("all")) == 2
    assert store.view("consumers").num_rows == 1, "the looks are no consumer"


def test_new_messages_of_a_log_are_new_ones_for_its_subscription(store):
    """They are reported at once, although earlier ones still wait."""
    topic = store.create_queue("topic", SCHEMA, log="7 days")
    reader = store.subscribe("reader", to="topic")

    def came() -> int:
        return look(store, {"reader"})["reader"].came

    topic.load([{"id": 1}])
    before = came()
    topic.load([{"id": 2}])
    assert came() == before + 1
    # To fire them brings no new ones.
    reader.delete(reader.fire("all"))
    assert came() == before + 1


def test_many_triggers_share_one_thread_and_may_be_cancelled(store):
    names = [f"q{n}" for n in range(20)]
    opened = [store.create_queue(name, SCHEMA) for name in names]

    async def trigger(name: str, counts: dict[str, int]) -> None:
        with looks(store.address, name, Arrivals()) as found:
            while True:
                counts[name] = counts.get(name, 0) + (await found.get()).waiting

    async def main() -> None:
        counts: dict[str, int] = {}
        tasks = [asyncio.create_task(trigger(name, counts)) for name in names]
        await asyncio.sleep(0)
        assert len(threads()) == 1
        for queue in opened:
            await asyncio.to_thread(queue.load, [{"id": 1}])
        async with asyncio.timeout(PATIENCE):
            while counts != dict.fromkeys(names, 1):
                await asyncio.sleep(0.01)
        for task in tasks[:-1]:
            task.cancel()
        await asyncio.gather(*tasks[:-1], return_exceptions=True)
        assert len(threads()) == 1
        # The last one still hears of its queue.
        await asyncio.to_thread(opened[-1].load, [{"id": 2}])
        async with asyncio.timeout(PATIENCE):
            while counts[names[-1]] < 3:
                await asyncio.sleep(0.01)
        tasks[-1].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[-1]

    asyncio.run(main())

    assert {row["in_flight"] for row in store.view("queues").to_pylist()} == {0}


def test_a_store_that_is_made_in_the_place_of_another_one_is_looked_at(tmp_path):
    address = Address.of(tmp_path / "store")

    async def main() -> None:
        with Store(address) as removed:
            removed.create_queue("orders", SCHEMA)
        with looks(address, "orders", Arrivals()) as found:
            await nothing(found)
            (tmp_path / "store").rename(tmp_path / "removed")
            with Store(address) as another:
                another.create_queue("orders", SCHEMA).load([{"id": 1}])
                assert (await soon(found)).waiting == 1

    asyncio.run(main())


def test_a_trigger_that_finds_no_thread_stops_no_later_ones(store, monkeypatch):
    store.create_queue("orders", SCHEMA).load([{"id": 1}])

    def refuse(_: Loop) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with monkeypatch.context() as crowded:
            crowded.setattr(Loop, "start", refuse)
            with pytest.raises(RuntimeError), looks(store.address, "orders", Arrivals()):
                pass
        with looks(store.address, "orders", Arrivals()) as found:
            assert (await soon(found)).waiting == 1

    asyncio.run(main())


def test_the_event_loop_asks_no_catalog(store):
    queue = store.create_queue("orders", SCHEMA)
    asked = set()

    def note(*_) -> None:
        asked.add(threading.current_thread().name)

    async def main() -> None:
        with ExitStack() as stack:
            found = [
                stack.enter_context(looks(store.address, "orders", Arrivals())) for _ in range(20)
            ]
            await asyncio.to_thread(queue.load, [{"id": 1}])
            for each in found:
                assert (await soon(each)).waiting == 1

    with heard(sa.Engine, before_cursor_execute=note):
        asyncio.run(main())
    assert threading.current_thread().name not in asked
    assert "ignis-airflow" in asked


def test_messages_of_another_process_are_reported(store, tmp_path):
    store.create_queue("orders", SCHEMA)

    async def main() -> None:
        with looks(store.address, "orders", Arrivals()) as found:
            await nothing(found, 0.3)
            child = Child(load_three, store.address, log=tmp_path / "child")
            assert (await soon(found)).waiting == 3
            assert await asyncio.to_thread(child.wait) == 0

    asyncio.run(main())


def load_three(address: Address) -> None:
    with Store(address) as store:
        store.queue("orders").load([{"id": n} for n in range(3)])


def test_messages_that_nobody_fires_are_reported_again(store, monkeypatch):
    monkeypatch.setattr(looking, "AGAIN_SECONDS", 1.5)
    store.create_queue("orders", SCHEMA).load([{"id": 1}])

    async def main() -> None:
        with looks(store.address, "orders", Arrivals()) as found:
            begin = time.monotonic()
            await soon(found)
            await soon(found)
            assert time.monotonic() - begin >= 1.5

    asyncio.run(main())


def test_a_message_is_reported_when_its_time_has_come(store):
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    queue = store.create_queue("reminders", schema, hold_until="at")
    queue.load([{"at": datetime.now(UTC) + timedelta(seconds=2)}])

    async def main() -> None:
        with looks(store.address, "reminders", Arrivals()) as found:
            await nothing(found, 0.5)
            await soon(found)

    asyncio.run(main())
    assert len(queue.fire("all")) == 1


def test_a_paused_queue_is_reported_when_it_goes_on(store):
    queue = store.create_queue("orders", SCHEMA)
    queue.admin.pause()
    queue.load([{"id": 1}])

    async def main() -> None:
        with looks(store.address, "orders", Arrivals()) as found:
            await nothing(found)
            await asyncio.to_thread(queue.admin.resume)
            await soon(found)

    asyncio.run(main())


def test_a_message_is_reported_once_to_a_subscription_that_others_do_not_match(store):
    topic = store.create_queue("topic", SCHEMA, log="7 days")
    store.subscribe("reader", to="topic", selector="id > 10")

    async def main() -> None:
        with looks(store.address, "reader", Arrivals()) as found:
            topic.load([{"id": 1}, {"id": 11}])
            await soon(found)
            await nothing(found, 2.0)
            topic.load([{"id": 12}])
            await soon(found)

    asyncio.run(main())


def test_a_deactivated_queue_is_not_reported_although_messages_wait(store):
    """A run could fire none of them, and would fail each minute."""
    queue = store.create_queue("orders", SCHEMA)
    queue.load([{"id": 1}])
    queue.admin.deactivate()

    async def main() -> None:
        with looks(store.address, "orders", Arrivals()) as found:
            await nothing(found)

    asyncio.run(main())


def test_a_queue_may_be_created_later(store, caplog):
    async def main() -> None:
        with looks(store.address, "orders", Arrivals()) as found:
            await nothing(found)
            await asyncio.to_thread(lambda: store.create_queue("orders", SCHEMA).load([{"id": 1}]))
            await soon(found)

    asyncio.run(main())

    assert [each for each in caplog.messages if "has no queue 'orders'" in each] != []


def test_a_store_may_be_created_later(tmp_path, caplog):
    address = Address.of(tmp_path / "later")

    async def main() -> None:
        with looks(address, "orders", Arrivals()) as found:
            await nothing(found, 0.5)
            with Store(address) as store:
                store.create_queue("orders", SCHEMA).load([{"id": 1}])
                await soon(found)

    asyncio.run(main())


def test_a_queue_is_empty_when_all_is_handled_or_dead(store):
    queue = store.create_queue("orders", SCHEMA, retry=Retry(attempts=2, backoff=constant(0.5)))

    def is_empty() -> bool:
        return look(store, {"orders"})["orders"].is_empty

    assert is_empty()
    queue.load([{"id": 1}, {"id": 2}])
    assert not is_empty()
    firing = queue.fire("all")
    assert not is_empty(), "they are in flight"
    queue.sideline(firing)
    assert not is_empty(), "they come back"
    time.sleep(0.6)
    queue.shovel()
    first, second = queue.fire(1), queue.fire(1)
    queue.delete(first)
    queue.sideline(second)
    assert store.view("queues").to_pylist()[0]["dead"] == 1
    assert is_empty()


def test_a_subscription_is_empty_though_its_log_has_messages_that_do_not_match(store):
    """Nobody fires any more, and so passes by them."""
    topic = store.create_queue("topic", SCHEMA, log="7 days")
    store.subscribe("reader", to="topic", selector="id > 10")
    topic.load([{"id": 1}])

    async def main() -> None:
        with looks(store.address, "reader", attrgetter("is_empty")) as found:
            await soon(found)

    asyncio.run(main())
    topic.load([{"id": 2}, {"id": 11}])
    assert [look(store, {"reader"})["reader"].is_empty for _ in range(3)] == [False] * 3
