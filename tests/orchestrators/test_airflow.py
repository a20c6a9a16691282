"""The DAGs of the page about Airflow, in a real one: two queues, both catalogs, kill -9."""

import asyncio
import random
import statistics
import time
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core import Store
from queue_core.values.address import Address
from tests.children import Child
from tests.examples import files
from tests.orchestrators.airflow import Airflow
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.orchestrator,
    pytest.mark.timeout(1200),
    # Airflow warns of itself.
    pytest.mark.filterwarnings("default"),
]
PAGE = "docs/how-to/airflow.md"
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
#: How often the time from a load to its run is measured.
TIMES = 20


@pytest.fixture
def airflow(tmp_path: Path, store: Store):
    """An Airflow with the DAGs of the page, and once more for a second queue."""
    for name in ("orders", "refunds"):
        store.create_queue(name, SCHEMA)
    store.create_queue("invoices", pa.schema([("id", pa.int64())]))
    dags = tmp_path / "dags"
    dags.mkdir()
    for place, text in files(PAGE):
        name = Path(place).name
        dags.joinpath(name).write_text(text)
        # Each of the words alone would also hit names that both DAGs share.
        dags.joinpath(f"refunds_{name}").write_text(
            text.replace("orders", "refunds").replace("report()", "report_refunds()")
        )
    catalog, storage = store.address
    place = {"IGNIS_CATALOG": catalog, "IGNIS_STORAGE": storage}
    with Airflow(tmp_path / "airflow", dags, place) as started:
        started.wait_for_triggers(2)
        yield started


def handled(store: Store) -> list[int]:
    return sorted(store.queue("invoices").browse().column("id").to_pylist())


def test_runs_start_when_messages_wait(airflow: Airflow, store: Store, tmp_path: Path):
    orders, refunds = store.queue("orders"), store.queue("refunds")
    latest, loaded, started_at = 0, [], []
    for number in range(TIMES):
        # Airflow's own loops take a second each: not always at the same moment of one.
        time.sleep(random.uniform(0, 2))
        orders.load([{"id": number, "amount": 1.0}])
        loaded.append(time.time())
        run = airflow.next_run("handle_orders", latest)
        latest = run.id
        started_at.append(run.started_at)
        assert handled(store) == [*range(number + 1)]

    fired, stored = airflow.fired(), airflow.stored()
    assert len(fired) == len(stored) == TIMES, "each message was reported once"
    for what, times in {"reported": fired, "stored": stored, "started": started_at}.items():
        seconds = [at - begin for at, begin in zip(times, loaded, strict=True)]
        print(f"{what}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
        if times is fired:
            # All the rest is Airflow's.
            assert statistics.median(seconds) < 0.5
    assert airflow.runs("handle_refunds") == []

    # By another process, into the other queue.
    assert Child(load, store.address, "refunds", 100, log=tmp_path / "child").wait() == 0
    airflow.next_run("handle_refunds", 0)
    assert refunds.peek().num_rows == 0
    assert handled(store) == [*range(TIMES), 100]


def test_a_killed_triggerer_loses_nothing(airflow: Airflow, store: Store):
    orders, refunds = store.queue("orders"), store.queue("refunds")
    ids, latest = [], {"orders": 0, "refunds": 0}
    for number, seconds in enumerate((0.0, 0.05, 0.3, 1.0)):
        orders.load([{"id": 2 * number, "amount": 1.0}])
        refunds.load([{"id": 2 * number + 1, "amount": 1.0}])
        ids += [2 * number, 2 * number + 1]
        time.sleep(seconds)
        airflow.kill("triggerer")
        airflow.start("triggerer")
        until(lambda ids=ids: handled(store) == ids, "a message was forgotten")
        for name in latest:
            latest[name] = airflow.next_run(f"handle_{name}", latest[name]).id

    assert set(store.view("queues").column("in_flight").to_pylist()) == {0}


def test_the_sensor_waits_until_the_queue_is_empty(airflow: Airflow, store: Store):
    from ignis_airflow.sensors import QueueEmptySensor

    orders = store.queue("orders")
    airflow.run("dags", "pause", "handle_orders", "--yes")
    orders.load([{"id": 1, "amount": 1.0}])
    catalog, storage = store.address
    sensor = QueueEmptySensor(
        task_id="own", queue_name="orders", catalog=catalog, storage=str(storage), deferrable=False
    )
    assert not sensor.poke({})
    airflow.run("dags", "trigger", "report")
    deferred = "SELECT 1 FROM task_instance WHERE task_id = 'handled' AND state = 'deferred'"
    until(lambda: airflow.ask(deferred) != [], "the sensor is not deferred")
    firing = orders.fire("all")
    time.sleep(2)
    assert airflow.ask(deferred) != [], "the message is in flight"
    airflow.kill("triggerer")
    airflow.start("triggerer")
    orders.delete(firing)
    airflow.next_run("report", 0)
    assert sensor.poke({})


def test_the_triggerer_gets_the_folder_of_the_worker(tmp_path: Path, monkeypatch):
    from ignis_airflow.sensors import QueueEmptySensor

    monkeypatch.chdir(tmp_path)
    with Store.open("shop") as store:
        store.create_queue("orders", SCHEMA).load([{"id": 1, "amount": 1.0}])
    given = {}
    monkeypatch.setattr(QueueEmptySensor, "defer", lambda _, **how: given.update(how))
    sensor = QueueEmptySensor(task_id="own", queue_name="orders", path="shop", deferrable=True)
    sensor.execute({})
    _, kwargs = given["trigger"].serialize()
    assert kwargs == {"queue_name": "orders", "path": (tmp_path / "shop").as_uri()}


def test_a_cancelled_trigger_leaves_the_event_loop_free(store: Store):
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    catalog, storage = store.address
    orders = store.create_queue("orders", SCHEMA)
    orders.load([{"id": 1, "amount": 1.0}])
    trigger = MessageQueueTrigger(
        scheme="ignis", queue_name="orders", catalog=catalog, storage=storage
    )
    kind, kwargs = trigger.serialize()

    async def main() -> None:
        events = trigger.run()
        event = await anext(events)
        assert event.payload == {"queue": "orders", "waiting": 1}
        task = asyncio.create_task(anext(events))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert kind == "ignis_airflow.triggers.MessagesTrigger"
    assert kwargs == {"queue_name": "orders", "catalog": catalog, "storage": storage}
    assert len(orders.fire("all")) == 1


def load(address: Address, queue: str, number: int) -> None:
    with Store(address) as store:
        store.queue(queue).load([{"id": number, "amount": 1.0}])
