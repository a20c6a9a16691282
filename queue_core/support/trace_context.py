"""Trace context of W3C: a message carries the span of its producer in the column `_traceparent`.

A load fills the column, if the queue has it, from the current span of OpenTelemetry. A handler
that is `traced_handler` continues that span.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from queue_core.support.import_paths import missing

if TYPE_CHECKING:
    from opentelemetry.trace import Link, SpanContext, TracerProvider

#: A nullable column of strings.
TRACEPARENT = "_traceparent"
#: The most producers to which the span of a batch is linked.
_MOST_LINKS = 128
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def with_traceparent(rows: pa.Table) -> pa.Table:
    """Return rows with the current span in place of nulls; as they are if there is no span."""
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ModuleNotFoundError:
        return rows
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    if "traceparent" not in carrier:
        return rows
    import pyarrow.compute as pc

    index, field = rows.schema.get_field_index(TRACEPARENT), rows.schema.field(TRACEPARENT)
    filled = pc.fill_null(rows.column(index), pa.scalar(carrier["traceparent"], field.type))
    return rows.set_column(index, field, filled)


def traced_handler(
    handler: _Handler, *, name: str | None = None, provider: TracerProvider | None = None
) -> _Handler:
    """
    Give each call of a handler a span of OpenTelemetry, which continues that of the producer.

    The producer's span is in the message's column ``_traceparent``, a nullable string, which the
    queue must have; `Queue.load` fills it from the current span. The call of a batch handler has
    one span, with links to the spans of up to 128 producers. An exception is recorded in the span,
    and a handler that returns False gives it the status ERROR.

    Args:
        handler: A handler of one message as a dict, or one that is marked by `batch_handler` and
            takes a ``pyarrow.RecordBatch``. It may be ``async def``.
        name: The name of the spans. By default, ``process`` and the name of the handler.
        provider: The tracer provider. By default, the global one. A handler that Spark sends to its
            executors cannot have one of its own: configure the global one there.

    Returns:
        The handler with spans, for a pool, `consume` or a manager.

    Raises:
        BadOption: opentelemetry-api is not installed.
    """
    try:
        import opentelemetry.trace  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing("traced_handler", error, "metrics") from error
    title = name or f"process {getattr(handler, '__name__', type(handler).__name__)}"

    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def awaited(messages: Any, *others: Any) -> Any:
            with _span(title, messages, provider) as tell:
                return tell(await handler(messages, *others))

        return awaited  # type: ignore[return-value]

    @functools.wraps(handler)
    def called(messages: Any, *others: Any) -> Any:
        with _span(title, messages, provider) as tell:
            return tell(handler(messages, *others))

    return called  # type: ignore[return-value]


@contextmanager
def _span(
    name: str, messages: Any, provider: TracerProvider | None
) -> Iterator[Callable[[Any], Any]]:
    """Start a span for a call; yields a function that tells the span the result."""
    from opentelemetry import trace

    attributes: dict[str, str | int] = {
        "messaging.system": "ignis",
        "messaging.operation.type": "process",
    }
    parent, links = None, []
    if isinstance(messages, pa.RecordBatch):
        attributes["messaging.batch.message_count"] = messages.num_rows
        links = _links(messages)
    else:
        producer = _producer(messages.get(TRACEPARENT) if isinstance(messages, dict) else None)
        if producer is not None:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(producer))
        if isinstance(messages, dict) and "_message_id" in messages:
            attributes["messaging.message.id"] = str(messages["_message_id"])
    tracer = (provider or trace.get_tracer_provider()).get_tracer("ignis")
    with tracer.start_as_current_span(
        name, context=parent, kind=trace.SpanKind.CONSUMER, attributes=attributes, links=links
    ) as span:

        def tell(result: Any) -> Any:
            if result is False:
                span.set_status(trace.Status(trace.StatusCode.ERROR, "rejected"))
            return result

        yield tell


def _links(batch: pa.RecordBatch) -> list[Link]:
    from opentelemetry.trace import Link

    if TRACEPARENT not in batch.schema.names:
        return []
    texts = batch.column(TRACEPARENT).unique().drop_null().slice(0, _MOST_LINKS).to_pylist()
    found = [_producer(text) for text in texts]
    return [Link(producer) for producer in found if producer is not None]


def _producer(text: str | None) -> SpanContext | None:
    """Return the span of a producer; None if the text is none, or not as W3C says."""
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
