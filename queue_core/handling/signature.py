"""Check before the start that a handler can take the arguments that it will be given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from queue_core.errors import BadOption
from queue_core.handling.results import name_of


def arguments_of(*, with_metadata: bool, transactional: bool = False) -> tuple[str, ...]:
    """Return the arguments of a handler, for errors."""
    message = "the message (or the batch)"
    columns = ("the other columns",) if with_metadata else ()
    return (message, *columns, *(("the connection",) if transactional else ()))


#: Tell functions of which a call runs nothing.
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
