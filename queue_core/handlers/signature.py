"""Check before the start that a handler can take the arguments that it will be given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from queue_core.errors import BadOption
from queue_core.handlers.results import name_of


def arguments_of(*, with_metadata: bool, transactional: bool = False) -> tuple[str, ...]:
    """Return the arguments of a handler, for errors."""
    message = "the message (or the batch)"
    columns = ("the other columns",) if with_metadata else ()
    return (message, *columns, *(("the connection",) if transactional else ()))


def check_signature(handler: Callable[..., Any], arguments: Sequence[str]) -> None:
    """
    Raise `BadOption` if a handler cannot take *arguments* by position.

    A function whose signature cannot be read, such as some builtins, passes.
    """
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
