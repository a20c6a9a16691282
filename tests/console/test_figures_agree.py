"""Console, metrics, views, SQL views and command line show the same."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from queue_core.upkeep.tasks.sample import sample
from queue_core.watching import wording
from queue_core.watching.prometheus import page
from tests.command_line import answer, runner
from tests.conftest import catalog_url  # noqa: F401 - that of the console is on SQLite alone
from tests.dump import backdate
from tests.factories import make_queue, orders

COUNTS = ("waiting", "in_flight", "sidelined", "retrying", "dead", "damaged")
RATES = ("loaded_per_s", "returned_per_s", "fired_per_s", "deleted_per_s", "sidelined_per_s")
_METRICS = {name: f"ignis_{name}_messages" for name in COUNTS} | {
    "sidelined": "ignis_sideline_messages"
}
#: The figures of a queue's page, by their titles.
_SHOWN = {
    "Waiting": "waiting",
    "In flight": "in_flight",
    "Sidelined": "sidelined",
    "Retrying": "retrying",
    "Dead": "dead",
    "Damaged": "damaged",
}
_RATES_SHOWN = {
    "New": "loaded_per_s",
    "Again": "returned_per_s",
    "Done": "deleted_per_s",
    "Failing": "sidelined_per_s",
}


def of(rows, queue="orders"):
    (row,) = [each for each in rows if each["queue"] == queue]
    return row


def some(row, names):
    return {name: row[name] for name in names}


def rates_of(samples):
    """The rates of the newest sample of the queue, or None."""
    fine = [each for each in samples if (each["queue"], each["seconds"]) == ("orders", 10)]
    return some(fine[-1], RATES) if fine else None


class Readers:
    """Each returns the counts of a queue, and the other figures that it has."""

    def __init__(self, client, store, address):
        self.client, self.store = client, store
        self.ignis = runner(address)

    def view(self):
        row = of(self.store.view("queues").to_pylist())
        samples = self.store.view("samples").to_pylist()
        held = {
            each["consumer"]: each["in_flight"] for each in self.store.view("consumers").to_pylist()
        }
        return some(row, COUNTS) | {
            "age": row["oldest_age"],
            "held": {name: count for name, count in held.items() if count},
            "rates": rates_of(samples),
        }

    def sql(self):
        with self.store.catalog.read() as connection:
            row = of(connection.execute(text("SELECT * FROM queue_figures")).mappings())
            samples = list(
                connection.execute(text("SELECT * FROM queue_samples ORDER BY taken_at")).mappings()
            )
        return some(row, COUNTS) | {"age": row["oldest_age"], "rates": rates_of(samples)}

    def console(self):
        self.client.app.state.console.changed("orders")
        (row,) = self.client.get("/api/queues", params={"q": "orders"}).json()["queues"]
        one = self.client.get("/api/queues/orders").json()
        assert row.keys() == one["queue"].keys()
        held = {each["name"]: each["held"] for each in one["details"]["holders"]}
        found = some(row, COUNTS) | {"age": row["oldest_age"], "held": held}
        return found | {"rates": some(row, RATES)}

    def html(self):
        """What a person reads; ages and rates as texts."""
        self.client.app.state.console.changed("orders")
        one = self.client.get("/queues/orders").text
        shown = {
            title: re.sub(r"<[^>]*>", "", value)
            for title, value in re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", one)
        }
        holders = re.findall(
            r'<th scope="row" class="mono"><a [^>]*>(.*?)</a></th>'
            r'<td>.*?</td><td class="n">.*?</td><td class="n">(.*?)</td>',
            one,
        )
        found = {name: number_of(shown[title]) for title, name in _SHOWN.items()}
        return found | {
            "age_text": shown["Oldest"],
            "held": {name: number_of(count) for name, count in holders},
            "rate_texts": {name: shown[title] for title, name in _RATES_SHOWN.items()},
        }

    def metrics(self):
        scraped = self.client.get("/metrics").text
        found = metrics_of(page(self.store))
        assert metrics_of(scraped).keys() == found.keys()
        return found

    def command_line(self):
        row = of(answer(self.ignis("queues", "--json")))
        samples = answer(self.ignis("samples", "--json"))
        held = {
            each["consumer"]: each["in_flight"]
            for each in answer(self.ignis("consumers", "--json"))
        }
        return some(row, COUNTS) | {
            "age": row["oldest_age"],
            "held": {name: count for name, count in held.items() if count},
            "rates": rates_of(samples),
        }

    def all(self):
        return (self.view, self.sql, self.console, self.html, self.metrics, self.command_line)


def number_of(shown):
    return int(shown.replace(",", ""))


def metrics_of(scraped):
    found, held = {}, {}
    for family in text_string_to_metric_families(scraped):
        for each in family.samples:
            if each.labels.get("queue") == "orders":
                # Damaged messages have a series for each of their files.
                found[each.name] = found.get(each.name, 0) + each.value
            if each.name == "ignis_consumer_in_flight_messages":
                held[each.labels["consumer"]] = int(each.value)
    counts = {name: int(found.get(metric, 0)) for name, metric in _METRICS.items()}
    return counts | {"age": found.get("ignis_oldest_message_age_seconds"), "held": held}


@pytest.fixture
def readers(operator, store, address):
    return Readers(operator, store, address)


def test_all_figures_agree_after_work(readers, store):
    queue, other = make_queue(store, shards=3), make_queue(store, "other")
    other.load(orders(7))
    queue.load(orders(1200))
    sample(store.catalog)
    till = store.consumer("till", beats=True)
    queue.delete(queue.fire(40, consumer=till).ids)
    queue.sideline(queue.fire(5, consumer=till).ids)
    queue.choose(queue.browse()["_message_id"][:3]).sideline("by hand")
    queue.fire(6, consumer=till)
    queue.fire(2, consumer=store.consumer("second"))
    sample(store.catalog)
    # So that the texts of ages stay the same for a minute.
    backdate(store, 5400, "loaded_at")

    first, *others = [read() for read in (readers.view, *readers.all(), readers.view)]

    assert some(first, COUNTS) == {
        "waiting": 1144,
        "in_flight": 8,
        "sidelined": 8,
        "retrying": 5,
        "dead": 3,
        "damaged": 0,
    }
    assert first["held"] == {"till": 6, "second": 2}
    assert first["age"] > 5400
    assert first["rates"]["deleted_per_s"] > 0
    assert first["rates"]["loaded_per_s"] == 0
    last = others[-1]
    for each in others:
        assert some(each, COUNTS) == some(first, COUNTS)
        assert each.get("held", first["held"]) == first["held"]
        assert each.get("rates", first["rates"]) == pytest.approx(first["rates"])
        if "age" in each:
            assert first["age"] <= each["age"] <= last["age"]
    (shown,) = [each for each in others if "age_text" in each]
    assert shown["age_text"] in (wording.age(first["age"]), wording.age(last["age"]))
    assert shown["rate_texts"] == {
        name: wording.number(first["rates"][name]) + "/s" for name in _RATES_SHOWN.values()
    }


def test_what_is_not_known_is_nowhere_shown_as_a_number(readers, store):
    make_queue(store)

    assert readers.view()["rates"] is None
    assert readers.sql()["rates"] is None
    assert set(readers.console()["rates"].values()) == {None}
    assert set(readers.html()["rate_texts"].values()) == {"unknown"}
    for read in (readers.view, readers.sql, readers.console, readers.metrics):
        assert read()["age"] is None
    assert readers.html()["age_text"] == "–"  # noqa: RUF001
