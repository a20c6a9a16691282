"""Handlers that are objects: a method for the message, and the exceptions that are ignored."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import Any, Protocol

from queue_core.errors import BadOption


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
    return handler.handle, (*own(), *given)
