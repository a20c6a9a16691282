"""Crashes at a named point, within the process of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from queue_core.errors import BadOption
from queue_core.support import faults
from queue_core.values.names import nearest


@contextmanager
def crash_at(point: str, *, passage: int = 1) -> Iterator[None]:
    """
    Interrupt the body of the ``with`` statement at a point, as the death of the process would.

    An exception that only the end of the ``with`` statement catches leaves the body at the point.
    Open transactions are rolled back, and committed ones stay. The process lives, so it still holds
    the messages that it has fired. ``docs/protocol.md`` lists the points in section 6. Use it in
    the thread that runs the verb: other threads, such as those of a pool, die of the exception.

    Args:
        point: The name of the point, such as ``settle.before_commit``.
        passage: The passage of the point that is interrupted, 1 or more. By default, the first.

    Yields:
        Nothing.

    Raises:
        AssertionError: The body ended before it reached the point.
        BadOption: There is no such point, or *passage* is not a whole number, 1 or more.
    """
    if point not in faults.POINTS:
        raise BadOption(
            f"point={point!r}: there is no such point{nearest(point, tuple(faults.POINTS))}; "
            "section 6 of docs/protocol.md lists them"
        )
    try:
        faults.arm(f"{point}:{passage}=raise")
    except ValueError:
        raise BadOption(f"passage={passage!r}: use a whole number, 1 or more") from None
    try:
        yield
    except faults.InjectedFault as fault:
        if str(fault) != point:
            raise
    else:
        raise AssertionError(f"the point {point} was not reached {passage} times")
    finally:
        faults.arm(None)
