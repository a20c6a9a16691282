"""
Handlers written as `async def`: each call runs to its end in an event loop of its own.

A handler that returns a coroutine, such as a lambda that calls one, is known by its result alone.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any


class Awaited:
    """
    Calls a handler that is a coroutine function, and returns its result.

    A loop of its own for each call is what a timeout can end for sure: whatever the call has
    started is cancelled with it. So objects that belong to a loop are made within the handler.
    """

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.handler = handler

    def __call__(self, *arguments: Any) -> Any:
        """Run the handler to its end."""
        return asyncio.run(self.handler(*arguments))


def finish(result: Any) -> Any:
    """Return the result of a handler, which may be a coroutine that is still to be run."""
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def is_coroutine(handler: Callable[..., Any]) -> bool:
    """Return whether a handler is a coroutine function, or an object whose call is one."""
    while isinstance(handler, partial):
        handler = handler.func
    if isinstance(handler, type):
        # A call makes an object, whatever a call of that object would be.
        return False
    call = getattr(handler, "__call__", None)  # noqa: B004 - its kind matters, not that it exists
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
