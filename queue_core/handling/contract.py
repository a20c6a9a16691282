"""`Contract`: a handler in Python and its options, checked before anything is started."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from queue_core.errors import BadOption, SchemaMismatch
from queue_core.handling.handler import batch_handler, takes_batches
from queue_core.handling.objects.message_class import message_class
from queue_core.handling.payloads import ObjectPayload, Payload, reader_of
from queue_core.handling.results import check_on_none, name_of
from queue_core.values.durations import FORM, in_seconds, is_seconds
from queue_core.values.model import QueueInfo
from queue_core.values.names import listed, nearest
from queue_core.values.retry import Retry, as_retry
from queue_core.values.schema import METADATA

Ignorable: TypeAlias = type[Exception] | Sequence[type[Exception]]
#: The metadata columns that handlers get by default. The times are left out, since a Python handler
#: pays for each value, and few use them.
DEFAULT_METADATA = ("_message_id", "_queue", "_attempt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A handler, how it is called, and which of its exceptions are ignored."""

    #: Handles messages; in Spark, it may be a Column.
    handler: Any = None
    ignorable: tuple[type[Exception], ...] = ()
    #: Seconds that a call may take; None: the queues' setting.
    timeout: float | None = None
    payload: Payload | ObjectPayload | None = None
    #: The outcome of a message when the handler returns None for it; None refuses such a handler.
    on_none: str | None = None
    #: Which failures are tried again, how often and when; None: the queues' setting.
    retry: Retry | None = None
    #: The columns that the handler takes; None: as `read` chooses them.
    columns: Sequence[str] | None = None
    #: Whether each call has a transaction, whose connection is its last argument.
    transactional: bool = False

    @staticmethod
    def of(
        handler: Any,
        *,
        ignorable: Any = (),
        handler_timeout: Any = None,
        payload: Any = None,
        payload_type: Any = None,
        message_type: Any = None,
        with_metadata: bool = False,
        on_none: Any = None,
        retry: Any = None,
        columns: Sequence[str] | None = None,
        transactional: bool = False,
    ) -> Contract:
        """
        Return the contract of a handler; the arguments are those of `ConsumerPool`.

        Raises `BadOption` for an argument that is not valid, or `SchemaMismatch` for
        *message_type*. The handler itself is checked by `check`.
        """
        function, exceptions = unwrapped(handler, ignorable)
        return Contract(
            handler=function,
            ignorable=_classes(exceptions),
            timeout=_seconds(handler_timeout),
            payload=_payload(payload, payload_type, bool(with_metadata), message_type),
            on_none=check_on_none(on_none),
            retry=as_retry(retry),
            columns=columns if isinstance(columns, str | None) else tuple(columns),
            transactional=transactional,
        )

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing that concerns only handlers in Python."""
        return not (self.ignorable or self.timeout or self.payload or self.on_none)

    def check(self) -> None:
        """Raise `BadOption` if the handler cannot take the arguments that it will be given."""
        with_metadata = self.payload is not None and self.payload.with_metadata
        arguments = arguments_of(with_metadata=with_metadata, transactional=self.transactional)
        check_signature(self.handler, arguments)
        if self.transactional and self.payload is not None and takes_batches(self.handler):
            raise BadOption(
                "transactional=True cannot be combined with a batch handler of payloads or "
                "objects: take the RecordBatch, or handle single messages"
            )

    def check_class(self, name: str, schema: pa.Schema) -> None:
        """Raise `SchemaMismatch` if a queue does not fit the class of the messages, if any."""
        if isinstance(self.payload, ObjectPayload):
            self.payload.kind.check_fits(schema, name)

    def check_queue(self, name: str, schema: pa.Schema, read: Sequence[str]) -> None:
        """Raise `SchemaMismatch` or `BadOption` if a queue lacks the columns *read*, or texts."""
        self.check_class(name, schema)
        fields = pa.schema([*schema, *METADATA])
        check_columns([name], fields.names, read)
        if isinstance(self.payload, Payload):
            kind = fields.field(self.payload.column).type
            is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
            check_payload(self.payload.column, str(kind), is_text=is_text)

    def read(self, names: Sequence[str]) -> list[str]:
        """
        Return the columns to read: those for the handler, and the message's id.

        *names* are those of the messages, with or without their metadata, since a queue can get
        more columns. Raises `BadOption` if *columns* is a text, or the payload leaves no room for
        other columns.
        """
        columns, payload = self.columns, self.payload
        if isinstance(columns, str):
            raise BadOption(f"columns={columns!r}: give a list of column names")
        if payload is not None and not payload.with_metadata:
            if columns is not None:
                raise BadOption(
                    "columns: a handler of objects is given no other columns; use "
                    "with_metadata=True"
                )
            given = []
        elif columns is None:
            given = [*(name for name in names if name not in METADATA.names), *DEFAULT_METADATA]
        else:
            given = list(columns)
        if payload is not None:
            given += payload.columns
        return list(dict.fromkeys([*given, "_message_id"]))

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

    def limit_for(self, queues: Sequence[QueueInfo]) -> str:
        """Return what the time of `timeout_for` comes from, for the log."""
        if self.timeout is not None:
            return "the pool's handler_timeout"
        settings = min((queue.settings for queue in queues), key=lambda s: s.longest_handling)
        if settings.longest_handling < settings.handler_timeout:
            return f"half of the setting sweep_after={settings.sweep_after:g}"
        return "the setting handler_timeout"


def check_columns(queues: Sequence[str], names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise `SchemaMismatch` for the first of *columns* that is not among the queues' *names*."""
    for column in columns:
        if column not in names:
            raise SchemaMismatch(
                f"queue {listed(queues, quoted=True)} has no column {column!r}"
                f"{nearest(str(column), names) or '.'} Columns: {', '.join(names)}"
            )


def check_payload(column: str, kind: str, *, is_text: bool) -> None:
    """Raise `BadOption` for a payload column whose type, called *kind*, holds no text."""
    if not is_text:
        raise BadOption(f"payload={column!r} is {kind}, not string or binary")


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


def _classes(ignorable: tuple[Any, ...]) -> tuple[type[Exception], ...]:
    for each in ignorable:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise BadOption(f"ignorable: {each!r} is not a subclass of Exception")
    return ignorable


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    seconds = in_seconds(timeout)
    if not is_seconds(seconds) or seconds == 0:
        raise BadOption(f"handler_timeout={timeout!r}: use {FORM}, more than 0")
    return float(seconds)


def arguments_of(*, with_metadata: bool, transactional: bool = False) -> tuple[str, ...]:
    """Return the arguments of a handler, for errors."""
    message = "the message (or the batch)"
    columns = ("the other columns",) if with_metadata else ()
    return (message, *columns, *(("the connection",) if transactional else ()))


#: Tests for generator functions: a call of one runs nothing.
_GENERATORS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def check_signature(handler: Callable[..., Any], arguments: Sequence[str]) -> None:
    """
    Raise `BadOption` if a handler cannot take *arguments* by position, or is a generator function.

    A function whose signature cannot be read, such as some builtins, passes.
    """
    call = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    if any(kind(each) for kind in _GENERATORS for each in (handler, call)):
        raise BadOption(
            f"handler={name_of(handler)} is a generator function, and a call of it runs nothing; "
            "return the decision instead of yielding it"
        )
    try:
        signature = inspect.signature(handler)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise BadOption(
            f"handler={name_of(handler)}{signature} cannot take its {len(arguments)} "
            f"{'argument' if len(arguments) == 1 else 'arguments'}, {' and '.join(arguments)}: "
            f"{error}"
        ) from None


class MagazineHandler(Protocol):
    """
    A handler that is an object, for `ConsumerPool`, ``consume`` and ``IgnisManager``.

    Any object with a method `handle` is one, and subclassing this class is optional. In Spark, the
    object is copied to the executors, so make connections within `handle`. Source: IgnisMQ,
    ``MagazineHandler``.
    """

    @abstractmethod
    def handle(self, message: Any) -> bool:
        """
        Handle a message.

        A coroutine function and a function marked by `batch_handler` are allowed, too.

        Args:
            message: What a function would take: a dict of the columns, or with ``payload`` or
                ``message_type`` an object.

        Returns:
            True if the message is done, and is to be deleted. Any other result sidelines it.
        """

    def ignorable_exceptions(self) -> Collection[type[Exception]]:
        """
        Name the exceptions of `handle` that delete the message; called once at the start.

        The method is optional. The argument ``ignorable`` adds to these exceptions. Source:
        IgnisMQ, ``getIgnorableExceptions``.

        Returns:
            Classes of exceptions. Their subclasses count, too. By default, none.
        """
        return ()


def unwrapped(handler: Any, ignorable: Any) -> tuple[Any, tuple[Any, ...]]:
    """
    Return the function of a handler and its ignorable exceptions, which are not checked yet.

    Other handlers are returned as they are. Raises `BadOption` for a class instead of an object.
    """
    given = (ignorable,) if isinstance(ignorable, type) else tuple(ignorable)
    # Looked up in the class, because a Column of Spark has any attribute.
    if isinstance(handler, type) and hasattr(handler, "handle"):
        raise BadOption(
            f"handler={handler.__name__} is a class: give an object of it, {handler.__name__}(…)"
        )
    if callable(handler) or not hasattr(type(handler), "handle"):
        return handler, given
    own = getattr(handler, "ignorable_exceptions", tuple)
    function = batch_handler(handler.handle) if takes_batches(handler) else handler.handle
    return function, (*own(), *given)
