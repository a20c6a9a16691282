"""A handler's span continues the producer's, in pools and alone."""

import asyncio

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from queue_core import ConsumerPool, batch_handler, traced_handler

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
    assert [span.name for span in found] == ["process work"] * 2
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


def test_a_handler_with_spans_is_checked_as_before(store, queue, provider):
    from queue_core.errors import BadOption

    with pytest.raises(BadOption, match="cannot take its 1 argument"):
        ConsumerPool(store, "jobs", traced_handler(lambda: True, provider=provider))
