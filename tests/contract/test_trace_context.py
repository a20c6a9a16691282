"""A handler's span continues the producer's, in pools and alone."""

import asyncio

import pyarrow as pa
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from queue_core import ConsumerPool, Later, batch_handler, traced_handler
from queue_core.catalog.queues import SettingsChanged
from queue_core.errors import QueueFull
from queue_core.waiting.publish import RoutedLoad

SCHEMA = pa.schema([("number", pa.int64()), ("_traceparent", pa.string())])
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans):
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(spans))
    yield made
    made.shutdown()


@pytest.fixture
def queue(store):
    return store.create_queue("jobs", SCHEMA, retry=None)


def produce(provider, queue, rows):
    with provider.get_tracer("test").start_as_current_span("produce") as span:
        queue.load(rows)
    return span.get_span_context()


def drain(store, handler, **options):
    with ConsumerPool(store, "jobs", handler, concurrency=1, **options) as pool:
        pool.drain()
    return dict(pool.counts)


def of_handler(spans):
    return [span for span in spans.get_finished_spans() if span.name != "produce"]


def test_each_call_is_a_child_of_its_own_producer(store, queue, provider, spans):
    first = produce(provider, queue, [{"number": 1}])
    second = produce(provider, queue, [{"number": 2}])

    def work(job):
        return True

    assert drain(store, traced_handler(work, provider=provider)) == {"deleted": 2}

    found = of_handler(spans)
    assert [span.name for span in found] == ["process jobs"] * 2
    assert {span.parent.span_id for span in found} == {first.span_id, second.span_id}
    assert {span.context.trace_id for span in found} == {first.trace_id, second.trace_id}
    assert {span.kind for span in found} == {SpanKind.CONSUMER}
    assert all(span.attributes["messaging.system"] == "ignis" for span in found)


def test_a_row_keeps_the_span_that_it_brings(store, queue, provider):
    produce(provider, queue, [{"number": 1, "_traceparent": OTHER}, {"number": 2}])

    kept, filled = queue.peek(order_by="number").column("_traceparent").to_pylist()

    assert kept == OTHER
    assert filled.startswith("00-")
    assert filled != OTHER


def test_without_a_span_the_column_stays_null(store, queue, provider, spans):
    queue.load([{"number": 1}, {"number": 2, "_traceparent": "not of W3C"}])

    assert queue.peek(order_by="number").column("_traceparent").to_pylist() == [None, "not of W3C"]
    assert drain(store, traced_handler(lambda job: True, provider=provider)) == {"deleted": 2}
    assert [span.parent for span in of_handler(spans)] == [None, None]


def test_a_failure_is_in_the_span(store, queue, provider, spans):
    queue.load([{"number": 1}, {"number": 2}])

    def work(job):
        if job["number"] == 1:
            raise ValueError("card declined")
        return False

    assert drain(store, traced_handler(work, provider=provider)) == {"sidelined": 2}

    found = of_handler(spans)
    assert {span.status.status_code for span in found} == {StatusCode.ERROR}
    events = [event.attributes["exception.message"] for span in found for event in span.events]
    assert events == ["card declined"]
    assert set(store.view("failures").column("kind").to_pylist()) == {"exception", "rejected"}


def test_a_batch_is_linked_to_its_producers(store, queue, provider, spans):
    first = produce(provider, queue, [{"number": 1}, {"number": 2}])
    second = produce(provider, queue, [{"number": 3}])

    @batch_handler
    def work(batch):
        return [True] * batch.num_rows

    assert drain(store, traced_handler(work, provider=provider), batch=10) == {"deleted": 3}

    (span,) = of_handler(spans)
    assert {link.context.span_id for link in span.links} == {first.span_id, second.span_id}
    assert span.attributes["messaging.batch.message_count"] == 3


def test_a_span_lasts_as_long_as_a_coroutine(store, queue, provider, spans):
    produce(provider, queue, [{"number": 1}])

    async def work(job):
        with provider.get_tracer("test").start_as_current_span("inner"):
            await asyncio.sleep(0)
        return True

    assert drain(store, traced_handler(work, name="work", provider=provider)) == {"deleted": 1}

    inner, outer = of_handler(spans)
    assert (inner.name, outer.name) == ("inner", "work")
    assert inner.parent.span_id == outer.context.span_id


def test_a_span_lasts_as_long_as_a_coroutine_of_an_object(store, queue, provider, spans):
    produce(provider, queue, [{"number": 1}])

    class Declining:
        async def __call__(self, job):
            await asyncio.sleep(0)
            raise ValueError("declined")

    assert drain(store, traced_handler(Declining(), provider=provider)) == {"sidelined": 1}

    (span,) = of_handler(spans)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "ValueError"


def test_a_handler_with_spans_is_checked_as_before(store, queue, provider):
    from queue_core.errors import BadOption

    with pytest.raises(BadOption, match="cannot take its 1 argument"):
        ConsumerPool(store, "jobs", traced_handler(lambda: True, provider=provider))


@pytest.fixture
def everywhere(provider, monkeypatch):
    """The provider as the global one, with a reader of the standard metrics."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    yield reader
    meters.shutdown()


def points(reader):
    (found,) = reader.get_metrics_data().resource_metrics
    (scope,) = found.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("ignis", "0.1.0")
    return {
        (metric.name, point.attributes.get("error.type"), point.attributes[DESTINATION]): point
        for metric in scope.metrics
        for point in metric.data.data_points
    }


DESTINATION = "messaging.destination.name"


def test_loads_and_handlers_have_the_attributes_and_metrics_of_the_conventions(
    store, queue, everywhere, provider, spans
):
    store.create_queue("others", SCHEMA)
    with provider.get_tracer("test").start_as_current_span("produce"):
        queue.load([{"number": 1}, {"number": 2}, {"number": 3}])
    store.queue("others").load([{"number": 9}])

    @traced_handler
    def work(job):
        if job["number"] == 2:
            raise ValueError("card declined")
        return job["number"] != 3

    with ConsumerPool(store, ["jobs", "others"], work, concurrency=1, name="workers") as pool:
        pool.drain()

    found = {
        span.name: span for span in spans.get_finished_spans() if span.kind != SpanKind.CONSUMER
    }
    assert found.keys() == {"produce", "send jobs", "send others"}
    sent = found["send jobs"]
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent.span_id == found["produce"].context.span_id
    assert sent.attributes["messaging.batch.message_count"] == 3
    assert sent.instrumentation_scope.version == "0.1.0"
    handled = [span for span in spans.get_finished_spans() if span.kind is SpanKind.CONSUMER]
    assert sorted(span.name for span in handled) == ["process jobs"] * 3 + ["process others"]
    for span in handled:
        named = span.attributes
        assert named["messaging.system"] == "ignis"
        assert named["messaging.operation.name"] == named["messaging.operation.type"] == "process"
        assert named["messaging.consumer.group.name"] == "workers"
        assert span.name == f"process {named[DESTINATION]}"
        sender = found[f"send {named[DESTINATION]}"]
        assert span.parent.span_id == sender.context.span_id
    errors = [span.attributes.get("error.type") for span in handled]
    assert sorted(errors, key=str) == [None, None, "ValueError", "rejected"]

    made = points(everywhere)
    assert made["messaging.client.sent.messages", None, "jobs"].value == 3
    for error, queue_name in ((None, "others"), ("ValueError", "jobs"), ("rejected", "jobs")):
        assert made["messaging.client.consumed.messages", error, queue_name].value == 1
        duration = made["messaging.process.duration", error, queue_name]
        assert (duration.count, max(duration.explicit_bounds)) == (1, 10)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ([True, False, True], "1 of 3 rejected"),
        ([Later(30), Later(30), asyncio.CancelledError()], "1 of 3 rejected"),
        (pa.array([False, False, True]), "2 of 3 rejected"),
        (pa.table({"outcome": ["delete", "reload", "sideline"]}), "1 of 3 rejected"),
        ([True] * 3, None),
    ],
)
def test_a_batch_with_rejected_messages_is_an_error(store, queue, provider, spans, result, text):
    queue.load([{"number": n} for n in range(3)])
    work = batch_handler(lambda batch: result)
    batch = queue.fire(3).messages.combine_chunks().to_batches()[0]
    traced_handler(work, provider=provider)(batch)

    (span,) = of_handler(spans)
    assert span.name == "process jobs"
    assert span.status.description == text
    assert (span.status.status_code is StatusCode.ERROR) == (text is not None)


def test_a_message_that_is_put_off_has_not_failed(store, queue, provider, spans):
    @traced_handler
    def work(job):
        raise Later("1h")

    with pytest.raises(Later):
        traced_handler(lambda job: work(job), provider=provider)({"number": 1})
    (span,) = of_handler(spans)
    assert span.status.status_code is StatusCode.UNSET
    assert (span.name, span.events) == ("process <lambda>", ())


def test_a_load_that_fails_is_an_error(store, everywhere, spans):
    full = store.create_queue("full", SCHEMA, max_size=1, overflow="fail")
    with pytest.raises(QueueFull):
        full.load([{"number": 1}, {"number": 2}])
    (span,) = spans.get_finished_spans()
    assert span.attributes["error.type"] == "QueueFull"
    assert points(everywhere)["messaging.client.sent.messages", "QueueFull", "full"].value == 2


def test_a_load_into_several_queues_has_one_span_for_each(
    store, queue, everywhere, provider, spans, monkeypatch
):
    others = store.create_queue("others", SCHEMA)
    run, tries = RoutedLoad.run, []

    def changed_meanwhile(load):
        tries.append(load)
        if len(tries) == 1:
            raise SettingsChanged
        return run(load)

    monkeypatch.setattr(RoutedLoad, "run", changed_meanwhile)
    with provider.get_tracer("test").start_as_current_span("produce") as producer:
        store.load({"jobs": [{"number": 1}], "others": [{"number": 2}, {"number": 3}]})

    found = {span.name: span for span in spans.get_finished_spans()}
    made = points(everywhere)
    assert len(spans.get_finished_spans()) == len(found) == 3
    for loaded, count in ((queue, 1), (others, 2)):
        sent = found[f"send {loaded.name}"]
        assert sent.parent.span_id == producer.get_span_context().span_id
        (text,) = set(loaded.peek(9).column("_traceparent").to_pylist())
        assert text.split("-")[2] == f"{sent.context.span_id:016x}"
        assert made["messaging.client.sent.messages", None, loaded.name].value == count


def test_a_load_into_several_queues_that_fails_is_an_error_of_each(store, queue, everywhere, spans):
    store.create_queue("full", SCHEMA, max_size=1, overflow="fail")
    with pytest.raises(QueueFull):
        store.load({"jobs": [{"number": 1}], "full": [{"number": 2}, {"number": 3}]})

    errors = [span.attributes["error.type"] for span in spans.get_finished_spans()]
    assert errors == ["QueueFull", "QueueFull"]
    counts = {key[1:]: point.value for key, point in points(everywhere).items()}
    assert counts == {("QueueFull", "jobs"): 1, ("QueueFull", "full"): 2}
