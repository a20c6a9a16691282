"""
Handlers written as `async def`: each call runs to its end in an event loop of its own.

A handler that only returns a coroutine, such as a lambda, is recognised by its result.
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

    Each call has its own loop, so that a timeout can end the call with everything that it started.
    Objects that belong to a loop must therefore be made within the handler.
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
        # Calling a class makes an object, even if calling that object returns a coroutine.
        return False
    call = getattr(handler, "__call__", None)  # noqa: B004 - its kind matters, not that it exists
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
