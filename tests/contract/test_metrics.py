"""Metrics: the same figures as the views, for Prometheus and for OpenTelemetry."""

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from unittest import mock

import pytest
import yaml
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from queue_core import limit, opentelemetry_instruments, prometheus_collector
from queue_core.errors import CatalogUnavailable
from queue_core.values.histogram import Measured
from queue_core.values.model import INLINE
from queue_core.verbs.quarantine import set_apart
from queue_core.watching import readings
from queue_core.watching.metric import COUNTERS, DEPTHS, HELD, HISTOGRAMS, METRICS
from queue_core.watching.prometheus import page, serve
from tests.command_line import answer
from tests.factories import make_queue, orders
from tests.waiting import until

DOCS = Path(__file__).parents[2] / "docs" / "monitoring"
RULES = yaml.safe_load((DOCS / "alerts.yml").read_text())
DASHBOARD = json.loads((DOCS / "dashboard.json").read_text())
EXPRESSIONS = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
]

#: Metrics that have another value a moment later.
MOVING = re.compile("age|wait_seconds|behind_seconds|headroom|available|free_bytes")


def work(store):
    """Use a queue, so that every metric has a value."""
    queue = make_queue(store, shards=2)
    make_queue(store, "empty")
    queue.load(orders(40))
    firing = queue.fire(20, consumer=store.consumer("till", beats=True))
    queue.delete(firing.ids[:5])
    queue.sideline(firing.ids[5:8])
    store.catalog.timings.add(queue.info.id, Measured.of([0.02, 3.0], [1, 2]), "deleted")
    store.catalog.timings.flush(store.catalog.write, at_once=True)
    queue.shovel(1, force=True)
    queue.start_shovel(force=True)
    queue.admin.change_settings(max_size=100, limits=limit(in_flight=50, per_second=10))
    queue.admin.pause()
    spoiled = make_queue(store, "spoiled").load(orders(1))[0].as_py() >> 20
    store.catalog.write(lambda connection: set_apart(connection, [f"{INLINE}{spoiled}"]))
    store.admin.breaker("payments").open()
    topic = make_queue(store, "topic", log="1 day")
    store.subscribe("reader", to="topic", late="1 day")
    store.subscribe("stopped", to="topic").admin.detach()
    topic.load(orders(3))
    with store.side_tasks(tasks=["sample"]):
        until(lambda: "ignis_side_task_age" in _values_text(store))
    return queue


def _values_text(store):
    return "".join(line for line in page(store).splitlines() if line[0] != "#")


def scraped(text):
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_the_metrics_are_the_figures_of_the_views(store):
    work(store)
    values = scraped(page(store))

    for row in store.view("queues").to_pylist():
        here = (("queue", row["queue"]),)
        for name, metric in DEPTHS.items():
            assert values[metric.prometheus, here] == row[name], name
        assert (("ignis_oldest_message_age_seconds", here) in values) == (row["waiting"] > 0)
        assert values["ignis_queue_paused", here] == (row["paused_at"] is not None)
    shards = store.view("shards").to_pylist()
    for (name, labels), value in values.items():
        if name.endswith("_messages_total"):
            place = dict(labels)
            counter = name.removeprefix("ignis_").removesuffix("_messages_total")
            # Messages that came back to main count apart.
            back = sum(row["returned"] for row in shards if row["queue"] == place["queue"])
            is_both = counter == "loaded" and place["magazine"] == "main"
            assert value + back * is_both == sum(
                row[counter]
                for row in shards
                if (row["queue"], row["magazine"]) == (place["queue"], place["magazine"])
            )
    assert values["ignis_consumer_in_flight_messages", (("consumer", "till"),)] == 12
    assert values["ignis_consumer_heartbeat_age_seconds", (("consumer", "till"),)] < 600
    assert values["ignis_open_breakers", (("breaker", "payments"),)] == 1


def test_every_metric_of_the_rules_and_the_dashboard_is_one_that_a_scrape_has(store):
    work(store)
    told = set(re.findall(r"^# TYPE (\w+)", page(store), re.MULTILINE))

    assert len(told) == len(METRICS)
    used = {name for text in EXPRESSIONS for name in re.findall(r"\bignis_\w+", text)}
    used = {name.removesuffix("_bucket") for name in used}
    assert used - told == set()
    page_names = set(re.findall(r"`(ignis_\w+)`", (DOCS.parent / "monitoring.md").read_text()))
    assert page_names == told


def test_messages_of_a_dead_process_without_heartbeats_are_stuck(store):
    queue = make_queue(store, sweep_after=0.2)
    later = make_queue(store, "later")
    for each in (queue, later):
        each.load(orders(10))
        each.fire(6)

    def told(name):
        return scraped(page(store))["ignis_stuck_messages", (("queue", name),)]

    until(lambda: told("orders") == 6)

    assert (told("orders"), told("later")) == (6, 0)
    queue.sweep(0.0)
    assert told("orders") == 0


def test_opentelemetry_has_the_same_values(store):
    work(store)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    opentelemetry_instruments(store, provider)

    (found,) = reader.get_metrics_data().resource_metrics
    (scope,) = found.scope_metrics
    by_name = {metric.name: metric for metric in scope.metrics}
    values = scraped(page(store))
    ends = dict.fromkeys(METRICS, ("",))
    ends |= dict.fromkeys(HISTOGRAMS, (".bucket", ".count", ".sum"))
    known = [(m, end) for m, of in readings.read(store).items() if of for end in ends[m]]
    assert by_name.keys() == {m.opentelemetry + end for m, end in known}
    buckets = by_name["ignis.handling.bucket"].data.data_points
    assert {(p.attributes["le"], p.value) for p in buckets} >= {
        ("0.01", 0),
        ("0.05", 1),
        ("5.0", 3),
    }
    for name, metric in (DEPTHS | COUNTERS).items():
        if metric.opentelemetry not in by_name:
            continue
        points = by_name[metric.opentelemetry].data.data_points
        assert by_name[metric.opentelemetry].unit == "{message}"
        for point in points:
            labels = {"queue": point.attributes["messaging.destination.name"]}
            if metric.counts:
                labels["magazine"] = point.attributes["ignis.magazine"]
            key = metric.prometheus + "_total" * metric.counts, tuple(sorted(labels.items()))
            assert point.value == values[key], name
    provider.shutdown()


def test_an_export_of_opentelemetry_asks_a_catalog_that_is_away_once(store, monkeypatch):
    """Not once for each instrument: a server that does not answer costs seconds each time."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    opentelemetry_instruments(store, provider)
    away = mock.Mock(side_effect=CatalogUnavailable("it is away"))
    monkeypatch.setattr(readings, "read", away)

    reader.get_metrics_data()

    assert away.call_count == 1
    provider.shutdown()


def test_the_page_is_what_the_client_of_prometheus_writes(store):
    """With labels that need escapes too."""
    work(store)
    reading = readings.read(store)
    reading[HELD].append((('a"b\\c\nd',), 3))
    with mock.patch.object(readings, "read", return_value=reading):
        ours = page(store)
        registry = CollectorRegistry()
        with mock.patch.object(store.catalog, "read", None):
            # To register reads nothing.
            registry.register(prometheus_collector(store))
        theirs = generate_latest(registry).decode()

    assert ours.splitlines() == theirs.splitlines()


def test_the_endpoint_answers_until_it_is_stopped(store):
    make_queue(store)
    port, stop = serve(store, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url) as answer:
        values = scraped(answer.read().decode())
    stop()

    assert values["ignis_waiting_messages", (("queue", "orders"),)] == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)


def test_the_command_prints_the_metrics_as_a_scrape_and_as_json(ignis, store):
    work(store)

    found = {
        (each["metric"], tuple(sorted(each["labels"].items()))): each["value"]
        for each in answer(ignis("--json", "metrics", "--once"))
    }

    values = scraped(page(store))
    steady = {key: value for key, value in found.items() if not MOVING.search(key[0])}
    assert steady.items() <= values.items()
    assert found.keys() == values.keys() == scraped(ignis("metrics", "--once").stdout).keys()


def test_a_queue_is_paused_by_its_concurrency_too(store):
    """As for the console, so that neither tells of old messages then."""
    make_queue(store, "idle", concurrency=0)
    make_queue(store, "busy")

    values = scraped(page(store))

    assert values["ignis_queue_paused", (("queue", "idle"),)] == 1
    assert values["ignis_queue_paused", (("queue", "busy"),)] == 0


def series(name, instance, values, **labels):
    """An input series of `promtool test rules`, of one store."""
    labels = {"job": "ignis", "instance": instance, "queue": "orders", **labels}
    named = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{named}}}", "values": values}


def test_alerts_concern_the_store_in_which_something_is_wrong(tmp_path):
    """Both stores have a queue of one name: paused and busy in `a`, neither in `b`."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("prometheus is not installed")
    both = [
        series(name, instance, f"{value}x60", **labels)
        for name, labels, a, b in (
            ("ignis_longest_wait_seconds", {}, "2000+0", "2000+0"),
            ("ignis_queue_fill_ratio", {}, "0.5+0", "0.96+0"),
            ("ignis_disk_free_bytes", {"place": "catalog"}, "4+0", "7+0"),
            ("ignis_disk_size_bytes", {"place": "catalog"}, "100+0", "100+0"),
            ("ignis_queue_paused", {}, "1+0", "0+0"),
            ("ignis_waiting_messages", {}, "5+0", "5+0"),
            ("ignis_deleted_messages_total", {"magazine": "main"}, "0+60", "0+0"),
            ("ignis_fired_messages_total", {"magazine": "main"}, "0+60", "0+60"),
            ("ignis_sidelined_messages_total", {"magazine": "main"}, "0+30", "0+0"),
            ("ignis_side_task_age_seconds", {"task": "sample"}, "5+0", "700+0"),
            ("up", {}, "1+0", "1+0"),
            # In b, less than half of the budget is used.
            ("ignis_subscription_headroom_seconds", {}, "2000+0", "2000+0"),
            ("ignis_subscription_behind_seconds", {}, "7000+0", "1000+0"),
            ("ignis_subscription_detached", {}, "0+0", "1+0"),
        )
        for instance, value in (("a", a), ("b", b))
    ]
    expected = {
        "IgnisOldMessages": ["b"],
        "IgnisQueueStuck": ["b"],
        "IgnisMessagesFail": ["a"],
        "IgnisQueueFull": ["b"],
        "IgnisDiskNearlyFull": ["a", "b"],
        "IgnisDiskFull": ["a"],
        "IgnisNoSideTasks": ["b"],
        "IgnisDamagedMessages": [],
        "IgnisSubscriptionLate": ["a"],
        "IgnisSubscriptionDetached": ["b"],
    }
    rules = {rule["alert"]: rule for rule in RULES["groups"][0]["rules"]}

    def firing(alert, instance):
        labels = {"instance": instance, "job": "ignis", "queue": "orders"}
        labels |= {"task": "sample"} if alert == "IgnisNoSideTasks" else {}
        labels |= {"place": "catalog"} if "Disk" in alert else {}
        told = rules[alert]["annotations"]["summary"].replace("{{ $labels.queue }}", "orders")
        free = "4%" if instance == "a" else "7%"
        percent = "96%" if alert == "IgnisQueueFull" else free
        for template, value in {
            "{{ $labels.place }}": "catalog",
            "{{ $value | humanizeDuration }}": "33m 20s",
            "{{ $value | humanizePercentage }}": percent,
            "{{ $value }}": "5",
        }.items():
            told = told.replace(template, value)
        return {"exp_labels": labels | rules[alert]["labels"], "exp_annotations": {"summary": told}}

    tests = {
        "rule_files": [str(DOCS / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": both,
                "alert_rule_test": [
                    {
                        "eval_time": "50m",
                        "alertname": alert,
                        "exp_alerts": [firing(alert, instance) for instance in instances],
                    }
                    for alert, instances in expected.items()
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    found = subprocess.run([tool, "test", "rules", tmp_path / "tests.yml"], capture_output=True)
    assert found.returncode == 0, found.stdout.decode() + found.stderr.decode()


@pytest.mark.slow
def test_a_real_prometheus_accepts_the_rules_and_answers_every_expression(store, tmp_path):
    """With `prometheus` and `promtool` on the path, such as those of Debian's package."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server is None or tool is None:
        pytest.skip("prometheus is not installed")
    work(store)
    subprocess.run([tool, "check", "rules", DOCS / "alerts.yml"], check=True)
    # Names, units and help texts are as Prometheus advises.
    subprocess.run([tool, "check", "metrics"], input=page(store), text=True, check=True)
    port, stop = serve(store, "127.0.0.1", 0)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(DOCS / "alerts.yml")],
        "scrape_configs": [
            {"job_name": "ignis", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    own = f"127.0.0.1:{9091 + port % 500}"
    process = subprocess.Popen(
        [
            server,
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={own}",
        ],
        stdout=sys.stderr,
    )
    try:
        for text in EXPRESSIONS:
            asked = filled_in(text)
            answer = ask(own, f"query?query={urllib.parse.quote(asked)}")
            assert answer["status"] == "success", text
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = ask(own, "query?query=ignis_waiting_messages")["data"]["result"]
            if found:
                break
            time.sleep(0.5)
        assert {each["metric"]["queue"]: each["value"][1] for each in found}["orders"] == "21"
        rules = ask(own, "rules")["data"]["groups"][0]["rules"]
        assert [rule for rule in rules if rule.get("lastError")] == []
        never = {m.prometheus for m, of in readings.read(store).items() if not of}
        panels = [t["expr"] for each in DASHBOARD["panels"] for t in each.get("targets", ())]
        time.sleep(5)
        for text in panels:
            asked = filled_in(text)
            found = ask(own, f"query?query={urllib.parse.quote(asked)}")["data"]["result"]
            # Of some, only queues in trouble have a value.
            maybe = any(each in text for each in (*never, "> 0", "unless"))
            assert found or maybe, text
    finally:
        process.terminate()
        process.wait()
        stop()


def filled_in(text):
    """An expression of the dashboard with values of its variables."""
    values = {"$queue": ".*", "$instance": ".*", "$n": "10", "$__rate_interval": "1m"}
    for name, value in values.items():
        text = text.replace(name, value)
    return text


#: How an expression begins that has few lines, however many queues there are.
BOUNDED = (
    r"((top|bottom)k\(\$n|histogram_quantile\([\d.]+, sum by \(le\)|(sum|max|min|count)\(|"
    r"(sum|max) by \((kind|state|task))"
)


def test_the_dashboard_has_no_panel_with_a_line_for_each_queue():
    """A store may have a thousand: each expression adds up, or has the topmost ones."""
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    for panel in DASHBOARD["panels"]:
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
        for target in panel.get("targets", ()):
            text = target["expr"]
            bounded = re.match(BOUNDED, text)
            assert bounded or re.match(r"ignis_(open_breakers|disk_free_bytes)", text), text
            assert set(re.findall(r"\$(\w+)", text)) <= names | {"__rate_interval"}, text
            assert "$instance" in text, text
    assert {each["type"] for each in DASHBOARD["panels"]} == {"row", "stat", "table", "timeseries"}


def ask(address, what):
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/api/v1/{what}") as answer:
                return json.load(answer)
        except urllib.error.URLError as error:
            # It answers 503 until it has started.
            is_final = isinstance(error, urllib.error.HTTPError) and error.code != 503
            if is_final or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
