"""The page about Kafka: its queries are killed. Into ignis is exactly once, back at least once."""

from pathlib import Path

import pyarrow as pa
import pytest

from queue_core import Store
from tests.connectors.deaths import DEATHS, Death, live_through
from tests.connectors.driver import Part
from tests.connectors.kafka import Broker
from tests.crash.spark import checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.connector, pytest.mark.timeout(1800)]
PAGE = "docs/how-to/kafka.md"
SAID = "kafka:9092"
INTO = (
    Death(point="sink.staged:2=session"),
    Death(point="sink.committed:2=session"),
    Death(),
    Death(forget=True),
)


def part(folder: Path, broker: Broker, first: int, end: int | None = None) -> Part:
    replace = {SAID: broker.address}
    return Part(page=PAGE, folder=str(folder), first=first, end=end, replace=replace)


def test_each_record_is_in_the_queue_once(tmp_path: Path, broker: Broker):
    folder = tmp_path / "shop"
    notes, said = tmp_path / "shop-checkpoints/from-kafka", tmp_path / "stderr"
    live_through(part(folder, broker, 0, 1), notes, lambda: 0, said=said, deaths=[], until=1)

    def loaded() -> int:
        if not (folder / "catalog.db").exists():
            return 0
        with Store.open(folder) as store:
            names = store.view("queues").column("queue").to_pylist()
            return store.queue("orders").browse().num_rows if "orders" in names else 0

    report = live_through(
        part(folder, broker, 1, 3), notes, loaded, said=said, deaths=INTO, until=2
    )

    print(*report, sep="\n")
    assert report[-1].endswith("written 1000")


def test_each_message_comes_back_at_least_once(tmp_path: Path, broker: Broker):
    folder = tmp_path / "shop"
    schema = {"customer": pa.string(), "order_id": pa.int64(), "amount": pa.float64()}
    with Store.open(folder) as store:
        orders = store.create_queue("orders", pa.schema(schema.items()), key="customer")
        orders.load([{"customer": f"c{n % 10}", "order_id": n, "amount": 1.0} for n in range(1000)])
    notes, said = tmp_path / "shop-checkpoints/to-kafka", tmp_path / "stderr"

    report = live_through(
        part(folder, broker, 3),
        notes,
        lambda: checkpoint.committed(notes),
        said=said,
        deaths=DEATHS,
        until=4,
    )

    print(*report, broker.count("done"), sep="\n")
    assert report[-1].endswith("noted 10; written 10")
    assert broker.count("done") > 1000, "a batch that is written again is there twice"
