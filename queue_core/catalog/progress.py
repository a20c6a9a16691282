"""Progress: how many messages a task of many transactions has done so far.

A listener hears of each transaction after its commit. It is set for a context, so that no verb
needs a parameter for it. A task that uses threads passes its context on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[int], None] | None] = ContextVar("ignis_progress", default=None)


@contextmanager
def told_to(listener: Callable[[int], None]) -> Iterator[None]:
    """Tell *listener* how many messages each transaction within has done."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def add(messages: int) -> None:
    """Tell the listener, if there is one, that so many further messages are done."""
    listener = _listener.get()
    if listener is not None and messages:
        listener(messages)
