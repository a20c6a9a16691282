"""The options of a handler in Python, checked before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from queue_core.errors import BadOption
from queue_core.handling.handler import takes_batches
from queue_core.handling.objects.message_class import message_class
from queue_core.handling.payload_types import reader_of
from queue_core.handling.payloads import ObjectPayload, Payload
from queue_core.handling.results import check_on_none
from queue_core.handling.signature import arguments_of, check_signature
from queue_core.values.durations import FORM, in_seconds, is_seconds
from queue_core.values.model import QueueInfo
from queue_core.values.retry import Retry, as_retry

Ignorable: TypeAlias = type[Exception] | Sequence[type[Exception]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """How a handler in Python is called, and which of its exceptions are ignored."""

    ignorable: tuple[type[Exception], ...] = ()
    #: Seconds that a call may take; None: the queues' setting.
    timeout: float | None = None
    payload: Payload | ObjectPayload | None = None
    #: The outcome of a message for which the handler returns None; None to refuse such a handler.
    on_none: str | None = None
    #: Which failures are tried again, how often and when; None: the queues' setting.
    retry: Retry | None = None

    @staticmethod
    def of(
        ignorable: Any = (),
        timeout: Any = None,
        payload: Any = None,
        payload_type: Any = None,
        with_metadata: bool = False,
        message_type: Any = None,
        on_none: Any = None,
        retry: Any = None,
    ) -> Contract:
        """Check the options; raises `BadOption`, or `SchemaMismatch` for *message_type*."""
        return Contract(
            ignorable=_classes(ignorable),
            timeout=_seconds(timeout),
            payload=_payload(payload, payload_type, bool(with_metadata), message_type),
            on_none=check_on_none(on_none),
            retry=as_retry(retry),
        )

    def check_handler(self, handler: Callable[..., Any], *, transactional: bool = False) -> None:
        """Raise `BadOption` if a handler cannot take the arguments that it will be given."""
        with_metadata = self.payload is not None and self.payload.with_metadata
        arguments = arguments_of(with_metadata=with_metadata, transactional=transactional)
        check_signature(handler, arguments)
        if transactional and self.payload is not None and takes_batches(handler):
            raise BadOption(
                "transactional=True cannot be combined with a batch handler of payloads or "
                "objects: take the RecordBatch, or handle single messages"
            )

    def timeout_for(self, queues: Sequence[QueueInfo]) -> float:
        """Return the seconds that a call for messages of *queues* may take; raises `BadOption`."""
        if self.timeout is None:
            return min(queue.settings.longest_handling for queue in queues)
        for queue in queues:
            half = queue.settings.sweep_after / 2
            if self.timeout > half:
                raise BadOption(
                    f"handler_timeout={self.timeout:g}: use at most {half:g} seconds, half of "
                    f"sweep_after of queue {queue.name!r}; a longer call may be swept while it runs"
                )
        return self.timeout


def _payload(
    column: Any, payload_type: Any, with_metadata: bool, message_type: Any
) -> Payload | ObjectPayload | None:
    if message_type is not None:
        if column is not None or payload_type is not None:
            raise BadOption("message_type cannot be combined with payload or payload_type")
        return ObjectPayload(message_class(message_type), with_metadata)
    if column is None:
        if payload_type is not None or with_metadata:
            raise BadOption(
                "payload_type and with_metadata need payload=, the column that holds the JSON "
                "text; message_type= makes an object of all columns"
            )
        return None
    if not isinstance(column, str):
        raise BadOption(f"payload={column!r}: give the name of the column with the JSON text")
    return Payload(column, None if payload_type is None else reader_of(payload_type), with_metadata)


def _classes(ignorable: Any) -> tuple[type[Exception], ...]:
    classes = (ignorable,) if isinstance(ignorable, type) else tuple(ignorable)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise BadOption(f"ignorable: {each!r} is not a subclass of Exception")
    return classes


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    seconds = in_seconds(timeout)
    if not is_seconds(seconds) or seconds == 0:
        raise BadOption(f"handler_timeout={timeout!r}: use {FORM}, more than 0")
    return float(seconds)
