"""Results of a handler: `Later`, `Reject`, and those for which it is refused.

A handler that forgets its `return` has done its work, and repeating its messages would do the work
again. So the first result decides: if it is None, the handler is refused. Its message is sidelined
as undecided and dead, and no other call begins; calls of other workers that are in progress end as
they do. If the handler has decided before, a None is the mistake of one message, which alone is
sidelined.

A handler of a sideline that puts a message off is refused too. Its message is reloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from queue_core.errors import BadOption, BadOutcome
from queue_core.values.durations import FORM, LONGEST_SECONDS, Duration, in_seconds, is_seconds
from queue_core.values.names import listed, nearest
from queue_core.values.outcomes import DELETE, SIDELINE

#: What the errors of refused handlers say.
_NONE = "returned None instead of a decision"
_PUT_OFF = "puts messages of the sideline off"
#: The outcomes that the argument ``on_none`` can give to a result of None.
ON_NONE = (DELETE, SIDELINE)
#: A column of a task's settlement: why its handler is refused, else null.
REFUSAL = "_refusal"


class Results:
    """The results of a handler so far, in one process. Thread-safe."""

    def __init__(self, on_none: str | None = None) -> None:
        #: The outcome of a result of None; None to refuse such a handler.
        self.on_none = on_none
        #: Whether the handler has decided about a message.
        self.decided = False
        #: Whether the handler returned None before it decided about any message, or has put a
        #: message off that cannot be.
        self.refused = False
        self._put_off = False

    def none(self) -> bool:
        """Note a result of None; return whether it deletes the message."""
        if self.on_none is None and not self.decided:
            self.refused = True
        return self.on_none == DELETE

    def refuse_to_put_off(self) -> bool:
        """Note that the handler puts a message off that cannot be; return False."""
        self.refused = self._put_off = True
        return False

    def refusal(self, handler: Callable[..., Any]) -> str | None:
        """Return why a handler is refused; None if it is not."""
        if not self.refused:
            return None
        if self._put_off:
            return (
                f"the handler {name_of(handler)} {_PUT_OFF}, with Later or a delay, and would get "
                "them again at once: a consumer of the sideline fires messages before their time. "
                "Return True or False, or requeue the messages and handle them in main. The "
                "message that it put off waits as before"
            )
        return (
            f"the handler {name_of(handler)} {_NONE}; return True to delete a message and False to "
            "sideline it, or set on_none='delete' or on_none='sideline'. The message that it "
            "handled is in the sideline, undecided and dead; the other messages wait"
        )


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


def is_refusal(error: BaseException) -> bool:
    """Whether an error, or what Spark makes of it, says that a handler is refused."""
    return any(text in str(error) for text in (_NONE, _PUT_OFF))


def refusal(why: str, queues: Sequence[str]) -> BadOutcome:
    """Return the error of a handler that is refused."""
    return BadOutcome(f"queue {listed(queues, quoted=True)}: {why}")


class Later(Exception):
    """
    Raised by a handler to get its message again later; this is no failure.

    The message waits in the sideline, and returns to main when the time has passed, counted from
    its settlement. The call counts neither as an attempt nor as a delivery, unless *seconds* is 0.
    If a batch handler raises it, its whole batch is put off; to put off only some messages, it
    returns `Later` for these in its list, or a table with ``outcome`` ``reload`` and ``delay``.

    A handler of a sideline cannot put messages off: its consumers fire messages before their time,
    so they would get the message again at once. Its pool or its query ends with `BadOutcome`.

    Args:
        seconds: For how long the message waits, 0 or more: seconds, a text such as ``"15m"``, or a
            ``timedelta``.
        reason: Any text, for the log.

    Raises:
        BadOption: *seconds* is out of range.
    """

    #: Tells traces that it is no failure.
    puts_off = True

    def __init__(self, seconds: Duration, reason: str | None = None) -> None:
        wait = in_seconds(seconds)
        if not is_seconds(wait) or wait > LONGEST_SECONDS:
            raise BadOption(f"Later({seconds!r}): use {FORM}, from 0 to a hundred years")
        super().__init__(seconds, reason)
        #: For how long the message waits, in seconds.
        self.seconds = float(wait)
        #: Why, for the log.
        self.reason = reason

    def __str__(self) -> str:
        return f"in {self.seconds:g} s" + (f": {self.reason}" if self.reason else "")


class Reject(Exception):
    """
    Raised by a handler to give a message up: it goes to the sideline, and is not tried again.

    The kind of the failure is ``rejected``. A handler that returns False rejects a message too, but
    gives no reason, and the policy ``retry`` says whether the message is tried again. A batch
    handler rejects its whole batch; to reject only some messages, it returns a list with one entry
    for each message, and a ``Reject`` is the entry of such a message. *ignorable* does not concern
    it, and a `Breaker` does not count it.

    Args:
        reason: Why, for `Queue.failures`; the first 2000 characters are kept.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        #: Why.
        self.reason = str(reason)
