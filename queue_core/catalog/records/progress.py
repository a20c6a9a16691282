"""Progress: how many messages or files a task of many transactions has done so far.

A listener hears of each transaction after its commit. It is set for a context, so that no verb
needs a parameter for it. A task that uses threads passes its context on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: What a listener hears: how many further ones are done, and how many further ones are to be done.
Listener = Callable[[int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("ignis_progress", default=None)


@contextmanager
def told_to(listener: Listener) -> Iterator[None]:
    """Tell *listener* how many messages or files each step within has done."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def add(done: int = 0, *, expected: int = 0) -> None:
    """Tell the listener, if any, how many further messages or files are *done* or *expected*."""
    listener = _listener.get()
    if listener is not None and (done or expected):
        listener(done, expected)
