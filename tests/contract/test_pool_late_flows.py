"""In a fair queue, the pool goes on with other values while the calls of one value hang."""

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

from queue_core import ConsumerPool, Retry, batch_handler, constant
from tests.waiting import PATIENCE, until

SCHEMA = pa.schema([("tenant", pa.string()), ("number", pa.int64())])
LIMIT = 0.5


class Services:
    """Calls for the tenant `slow` hang until it is up."""

    def __init__(self):
        self.up = threading.Event()
        self.handled = Counter()
        #: How many calls have hung.
        self.hung = 0
        self._lock = threading.Lock()

    def one(self, message):
        self.call([message["tenant"]])
        return True

    def many(self, batch):
        self.call(batch["tenant"].to_pylist())
        return [True] * batch.num_rows

    def by_number(self, message):
        self.call(["slow" if message["number"] % 2 else "quick"])
        return "tenant" not in message

    def call(self, tenants):
        if "slow" in tenants and not self.up.is_set():
            with self._lock:
                self.hung += 1
            self.up.wait(PATIENCE)
        with self._lock:
            self.handled.update(tenants)


@pytest.fixture
def services():
    made = Services()
    yield made
    made.up.set()


@pytest.fixture
def queue(store):
    return store.create_queue(
        "calls",
        SCHEMA,
        shards=2,
        fair_by="tenant",
        categories=["tenant"],
        retry=Retry(attempts=9, backoff=constant(0.1)),
    )


def load(queue, messages):
    tenants = ["slow" if number % 2 else "quick" for number in range(messages)]
    queue.load(pa.table({"tenant": tenants, "number": range(messages)}, schema=SCHEMA))


@pytest.mark.parametrize("kind", ["one", "many", "by_number"])
def test_others_are_handled_while_one_value_hangs_and_it_too_when_it_answers(
    store, queue, services, kind
):
    handler = getattr(services, kind)
    options = {"columns": ["number"]} if kind == "by_number" else {}
    load(queue, 400)
    began = time.monotonic()
    with ConsumerPool(
        store,
        "calls",
        batch_handler(handler) if kind == "many" else handler,
        concurrency=4,
        batch=20,
        handler_timeout=LIMIT,
        **options,
    ) as pool:
        until(lambda: services.handled["quick"] == 200)
        load(queue, 40)
        until(lambda: services.handled["quick"] == 220)
        # Each worker has hung once, and since then one at a time.
        assert services.hung <= 4 + (time.monotonic() - began) / LIMIT
        services.up.set()
        until(lambda: pool.drain(PATIENCE) and store.view("queues")["retrying"][0].as_py() == 0)
        assert pool.drain(PATIENCE)
    assert services.handled.keys() == {"quick", "slow"}
    (left,) = store.view("queues").select(["waiting", "in_flight", "sidelined"]).to_pylist()
    assert set(left.values()) == {0}
