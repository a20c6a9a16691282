"""Results of a handler that are no decision: a handler that returns nothing is refused.

A handler that forgets its `return` has done its work, and repeating its messages would do the work
again. So the first result decides: if it is None, the handler is refused. Its message is sidelined
as undecided and dead, and no other call begins; calls of other workers that are in progress end as
they do. If the handler has decided before, a None is
the mistake of one message, which alone is sidelined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from queue_core.errors import BadOption, BadOutcome
from queue_core.names import nearest
from queue_core.outcomes import DELETE, SIDELINE

#: The outcomes that the argument ``on_none`` can give to a result of None.
ON_NONE = (DELETE, SIDELINE)
#: A column of a task's settlement: the name of a handler that returned nothing, else null.
REFUSAL = "_refusal"


class Results:
    """The results of a handler so far, in one process. Thread-safe."""

    def __init__(self, on_none: str | None = None) -> None:
        self._on_none = on_none
        #: Whether the handler has decided about a message.
        self.decided = False
        #: Whether the handler returned None before it decided about any message.
        self.refused = False

    def none(self) -> bool:
        """Note a result of None; return whether it deletes the message."""
        if self._on_none is None and not self.decided:
            self.refused = True
        return self._on_none == DELETE


def check_on_none(on_none: Any) -> str | None:
    """Return the outcome of a result of None, which may be None; raises `BadOption`."""
    if on_none is not None and on_none not in ON_NONE:
        raise BadOption(
            f"on_none={on_none!r}: use 'delete', 'sideline' or None{nearest(str(on_none), ON_NONE)}"
        )
    return on_none  # type: ignore[no-any-return]


def name_of(handler: Callable[..., Any]) -> str:
    """Return the name of a handler, for errors."""
    while isinstance(handler, partial):
        handler = handler.func
    return getattr(handler, "__qualname__", None) or type(handler).__qualname__


def refusal(handler: str, queues: Sequence[str]) -> BadOutcome:
    """Return the error of a handler that returned nothing."""
    names = ", ".join(map(repr, queues))
    return BadOutcome(
        f"queue {names}: the handler {handler} returned None instead of a decision; return True to "
        "delete a message and False to sideline it, or set on_none='delete' or on_none='sideline'. "
        "The message that it handled is in the sideline as undecided and dead, and the others wait"
    )
