"""Traces and metrics of OpenTelemetry for loads and handlers, after its conventions for messaging.

A message carries the span of its producer in the column `_traceparent`, as W3C's trace context
says. A load of a queue that has the column has a span, and fills the column with it. A handler that
is `traced_handler` continues that span.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from queue_core.support.import_paths import missing

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, MeterProvider
    from opentelemetry.trace import Link, SpanContext, TracerProvider

#: A nullable column of strings.
TRACEPARENT = "_traceparent"
#: The most producers to which the span of a batch is linked.
_MOST_LINKS = 128
#: Seconds of a handler, as the conventions propose.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_ERROR = "error.type"
_Handler = TypeVar("_Handler", bound=Callable[..., Any])

#: The queue and the consumer of the messages that this thread handles, if they are known.
handled_for: ContextVar[tuple[str, str] | None] = ContextVar("handled_for", default=None)


class _Instruments(NamedTuple):
    """The standard metrics."""

    duration: Histogram
    consumed: Counter
    sent: Counter


def sending(tables: Mapping[str, pa.Table]) -> AbstractContextManager[dict[str, pa.Table]]:
    """
    Open a span for the load into each queue with the column `_traceparent`; yield rows by queues.

    A span that is recorded takes the place of nulls in that column.
    """
    sent = dict(tables)
    traced = [queue for queue, rows in sent.items() if TRACEPARENT in rows.schema.names]
    return _sending_each(sent, traced) if traced else nullcontext(sent)


@contextmanager
def _sending_each(sent: dict[str, pa.Table], traced: list[str]) -> Iterator[dict[str, pa.Table]]:
    with ExitStack() as stack:
        with suppress(ModuleNotFoundError):
            from opentelemetry.context import get_current

            caller = get_current()
            for queue in traced:
                sent[queue] = stack.enter_context(_sending(sent[queue], queue, caller))
        yield sent


@contextmanager
def _sending(rows: pa.Table, queue: str, caller: Context) -> Iterator[pa.Table]:
    """Do so for one queue; *caller* is the context of which the span is a part."""
    from opentelemetry import trace
    from opentelemetry.metrics import get_meter_provider

    attributes = _attributes("send", queue) | {"messaging.batch.message_count": rows.num_rows}
    tracer = trace.get_tracer_provider().get_tracer("ignis", version("ignis-queue"))
    sent = _instruments(get_meter_provider()).sent
    kept = _attributes("send", queue)
    outer = _current(caller)
    with tracer.start_as_current_span(
        f"send {queue}", context=caller, kind=trace.SpanKind.PRODUCER, attributes=attributes
    ) as span:
        try:
            # Without a provider, the span of the caller stays the producer's.
            yield _with_traceparent(rows, _current() or outer)
        except BaseException as error:
            kept[_ERROR] = type(error).__qualname__
            span.set_attribute(_ERROR, kept[_ERROR])
            raise
        finally:
            sent.add(rows.num_rows, kept)


def _current(context: Context | None = None) -> str | None:
    """Return the span of a context, by default the current one, as a text; None without one."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return carrier.get("traceparent")


def _with_traceparent(rows: pa.Table, span: str | None) -> pa.Table:
    """Return rows with a span in place of nulls."""
    if span is None:
        return rows
    import pyarrow.compute as pc

    index, field = rows.schema.get_field_index(TRACEPARENT), rows.schema.field(TRACEPARENT)
    filled = pc.fill_null(rows.column(index), pa.scalar(span, field.type))
    return rows.set_column(index, field, filled)


def traced_handler(
    handler: _Handler,
    *,
    name: str | None = None,
    provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> _Handler:
    """
    Give each call of a handler a span of OpenTelemetry, which continues that of the producer.

    The producer's span is in the message's column ``_traceparent``, a nullable string, which the
    queue must have; `Queue.load` fills it from the span of the load. The call of a batch handler
    has one span, with links to the spans of up to 128 producers. An exception is recorded in the
    span, and it and a handler that rejects messages give it the status ERROR. Names and attributes
    are those of OpenTelemetry's conventions for messaging, and each call counts in their metrics
    ``messaging.process.duration`` and ``messaging.client.consumed.messages``.

    Args:
        handler: A handler of one message as a dict, or one that is marked by `batch_handler` and
            takes a ``pyarrow.RecordBatch``. It may be ``async def``.
        name: The name of the spans. By default, ``process`` and the name of the queue, or of the
            handler, if the messages have no column ``_queue`` and no pool handles them.
        provider: The tracer provider. By default, the global one. A handler that Spark sends to its
            executors cannot have one of its own: configure the global one there.
        meter_provider: The meter provider. By default, the global one, as for *provider*.

    Returns:
        The handler with spans, for a pool, `consume` or a manager.

    Raises:
        BadOption: opentelemetry-api is not installed.
    """
    try:
        import opentelemetry.trace  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing("traced_handler", error, "metrics") from error
    title = getattr(handler, "__name__", type(handler).__name__)
    spans = functools.partial(_span, name, title, provider, meter_provider)

    if any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):

        @functools.wraps(handler)
        async def awaited(messages: Any, *others: Any) -> Any:
            with spans(messages) as tell:
                return tell(await handler(messages, *others))

        return awaited  # type: ignore[return-value]

    @functools.wraps(handler)
    def called(messages: Any, *others: Any) -> Any:
        with spans(messages) as tell:
            return tell(handler(messages, *others))

    return called  # type: ignore[return-value]


@contextmanager
def _span(
    name: str | None,
    title: str,
    provider: TracerProvider | None,
    meters: MeterProvider | None,
    messages: Any,
) -> Iterator[Callable[[Any], Any]]:
    """Start a span for a call; yields a function that tells the span the result."""
    from opentelemetry import trace
    from opentelemetry.metrics import get_meter_provider

    queue, consumer = handled_for.get() or (None, None)
    own: dict[str, str | int] = {}
    parent, links, count = None, [], 1
    if isinstance(messages, pa.RecordBatch):
        own["messaging.batch.message_count"] = count = messages.num_rows
        links = _links(messages)
        if queue is None and count and "_queue" in messages.schema.names:
            queue = messages.column("_queue")[0].as_py()
    elif isinstance(messages, list):
        own["messaging.batch.message_count"] = count = len(messages)
    elif isinstance(messages, dict):
        queue = queue or messages.get("_queue")
        producer = _producer(messages.get(TRACEPARENT))
        if producer is not None:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(producer))
        if "_message_id" in messages:
            own["messaging.message.id"] = str(messages["_message_id"])
    kept = _attributes("process", queue, consumer)
    tracer = (provider or trace.get_tracer_provider()).get_tracer("ignis", version("ignis-queue"))
    meter = _instruments(meters or get_meter_provider())
    began = time.monotonic()
    with tracer.start_as_current_span(
        name or f"process {queue or title}",
        context=parent,
        kind=trace.SpanKind.CONSUMER,
        attributes=kept | own,
        links=links,
        set_status_on_exception=False,
        record_exception=False,
    ) as span:

        def fail(kind: str, text: str) -> None:
            kept[_ERROR] = kind
            span.set_attribute(_ERROR, kind)
            span.set_status(trace.Status(trace.StatusCode.ERROR, text))

        def tell(result: Any) -> Any:
            rejected = _rejected(result)
            if rejected:
                fail("rejected", "rejected" if count == 1 else f"{rejected} of {count} rejected")
            return result

        try:
            yield tell
        except BaseException as error:
            # A message that is put off has not failed.
            if not getattr(error, "puts_off", False):
                span.record_exception(error)
                fail(type(error).__qualname__, f"{type(error).__name__}: {error}")
            raise
        finally:
            meter.duration.record(time.monotonic() - began, kept)
            meter.consumed.add(count, kept)


def _attributes(
    operation: str, queue: str | None, consumer: str | None = None
) -> dict[str, str | int]:
    found = {
        "messaging.system": "ignis",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "messaging.consumer.group.name": consumer,
    }
    return {name: value for name, value in found.items() if value is not None}


@functools.lru_cache(maxsize=16)
def _instruments(provider: MeterProvider) -> _Instruments:
    meter = provider.get_meter("ignis", version("ignis-queue"))
    duration = functools.partial(
        meter.create_histogram,
        "messaging.process.duration",
        unit="s",
        description="Duration of processing operation.",
    )
    try:
        seconds = duration(explicit_bucket_boundaries_advisory=_BOUNDS)
    except TypeError:
        # Before version 1.30, the API has no advice.
        seconds = duration()
    consumed, sent = (
        meter.create_counter(f"messaging.client.{name}.messages", unit="{message}", description=of)
        for name, of in (
            ("consumed", "Number of messages that were delivered to the application."),
            ("sent", "Number of messages producer attempted to send to the broker."),
        )
    )
    return _Instruments(seconds, consumed, sent)


def _rejected(result: Any) -> int:
    """Return how many messages a handler rejects by its result: False, or False among others."""
    if isinstance(result, tuple) and result:
        # With the rows that it returns for another queue.
        result = result[0]
    if isinstance(result, pa.RecordBatch | pa.Table):
        if "outcome" not in result.schema.names:
            return 0
        result = [outcome != "sideline" for outcome in result.column("outcome").to_pylist()]
    if isinstance(result, pa.Array | pa.ChunkedArray):
        result = result.to_pylist()
    if isinstance(result, Sequence) and not isinstance(result, str):
        return sum(each is False or _fails(each) for each in result)
    return int(result is False)


def _fails(each: Any) -> bool:
    """Whether a decision is an exception, unless it puts its message off."""
    return isinstance(each, BaseException) and not getattr(each, "puts_off", False)


def _links(batch: pa.RecordBatch) -> list[Link]:
    from opentelemetry.trace import Link

    if TRACEPARENT not in batch.schema.names:
        return []
    texts = batch.column(TRACEPARENT).unique().drop_null().slice(0, _MOST_LINKS).to_pylist()
    found = [_producer(text) for text in texts]
    return [Link(producer) for producer in found if producer is not None]


def _producer(text: str | None) -> SpanContext | None:
    """Return the span of a producer; None if the text is missing, or not in W3C's format."""
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if text is None:
        return None
    # A context of its own, since the caller's may have a span.
    from opentelemetry.context import Context

    carrier = {"traceparent": text}
    found = get_current_span(TraceContextTextMapPropagator().extract(carrier, Context()))
    context = found.get_span_context()
    return context if context.is_valid else None
