"""The console, the metrics, the views and the command line show the same, while work goes on."""

import threading

from prometheus_client.parser import text_string_to_metric_families

from queue_core.monitoring.prometheus import page
from tests.command_line import answer, runner
from tests.console.clients import on_both as catalog_url  # noqa: F401 - a fixture
from tests.factories import make_queue, orders

FIGURES = ("waiting", "in_flight", "sidelined", "retrying", "dead", "damaged")
_METRICS = {name: f"ignis_{name}_messages" for name in FIGURES} | {
    "sidelined": "ignis_sideline_messages"
}


def by_view(store):
    (row,) = store.view("queues", "orders").to_pylist()
    return {name: row[name] for name in FIGURES}


def by_console(client):
    client.app.state.console.poller.look(fresh=True)
    (row,) = client.get("/api/queues", params={"q": "orders"}).json()["queues"]
    one = client.get("/api/queues/orders").json()["queue"]
    client.app.state.console.changed("orders")
    assert row.keys() == one.keys()
    return {name: row[name] for name in FIGURES}


def by_metrics(store):
    found = {
        each.name: each.value
        for family in text_string_to_metric_families(page(store.catalog))
        for each in family.samples
        if each.labels.get("queue") == "orders"
    }
    return {name: int(found[metric]) for name, metric in _METRICS.items()}


def by_command_line(address):
    (row,) = [
        each for each in answer(runner(address)("queues", "--json")) if each["queue"] == "orders"
    ]
    return {name: row[name] for name in FIGURES}


def test_the_figures_agree_while_work_goes_on(operator, store, address):
    """While messages only come, no later reading shows fewer; while they only go, none more."""
    queue = make_queue(store, shards=2)
    queue.load(orders(50))

    def readings():
        yield by_view(store)
        yield by_console(operator)
        yield by_metrics(store)
        yield by_command_line(address)
        yield by_view(store)

    def beside(work):
        ended = threading.Event()

        def run():
            while not ended.is_set():
                work()

        thread = threading.Thread(target=run)
        thread.start()
        found = [each for _ in range(2) for each in readings()]
        ended.set()
        thread.join()
        return found

    coming = beside(lambda: queue.load(orders(3)))
    waiting = [each["waiting"] for each in coming]
    assert waiting == sorted(waiting)
    assert waiting[0] < waiting[-1]

    def finish():
        firing = queue.fire(2, consumer=consumer)
        queue.sideline(firing.ids[:1])
        queue.delete(firing.ids[1:])

    consumer = store.consumer("till", beats=True)
    going = beside(finish)
    waiting = [each["waiting"] for each in going]
    aside = [each["sidelined"] for each in going]
    assert waiting == sorted(waiting, reverse=True)
    assert aside == sorted(aside)

    queue.fire(3, consumer=consumer)
    first, *others = readings()
    assert first["in_flight"] == 3
    assert all(each == first for each in others)
