"""`Limit`: how many messages of a queue may be fired per second, and be in flight.

The setting `limits` of a queue has limits, and the catalog keeps them for all processes. All queues
whose limits have the same name share one of them. A limit has a text, such as
``limit(in_flight=100, per_second=10)``, which the stored settings and the command line use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any

from queue_core.errors import BadOption
from queue_core.values.durations import FORM, Duration, check_whole, in_seconds, is_number
from queue_core.values.options import of_calls

#: More messages than any limit allows.
MANY = 1 << 62
#: The highest rate: the clock of a catalog counts microseconds.
_FASTEST = 1e6
#: The lowest rate: one message in a year of 365 days.
_SLOWEST = 1 / (365 * 86_400)
#: The longest window, in seconds.
_LONGEST = 86_400.0
#: The most characters of a name.
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Limit:
    """
    How many messages of a queue may be fired per second, and be in flight; made by `limit`.

    Attributes:
        column: The column each of whose values has the limit; None: the whole queue has it.
        name: The name by which queues share the limit; None: the queue has it alone.
        in_flight: The most messages in flight; None: no limit.
        per_second: The most messages fired per second; None: no limit.
        window: Seconds for which unused firings are kept.
    """

    column: str | None = None
    name: str | None = None
    in_flight: int | None = None
    per_second: float | None = None
    window: float = 1.0

    def __post_init__(self) -> None:
        if self.column is not None and not (isinstance(self.column, str) and self.column):
            raise BadOption(f"limit: column={self.column!r}: use the name of a column")
        if self.name is not None and not _is_name(self.name):
            raise BadOption(
                f"limit: name={self.name!r}: use 1 to {_LONGEST_NAME} printable characters"
            )
        if self.name is not None and self.column is not None:
            raise BadOption(
                f"limit: name={self.name!r}: a limit of the values of column {self.column!r} "
                "cannot be shared; leave out the name, or the column"
            )
        if self.in_flight is None and self.per_second is None:
            raise BadOption("limit: give in_flight, per_second, or both")
        if self.in_flight is not None:
            check_whole("limit: in_flight", self.in_flight, 1)
        if self.per_second is not None and not (
            _within(self.per_second, _FASTEST) and self.per_second >= _SLOWEST
        ):
            raise BadOption(
                f"limit: per_second={self.per_second!r}: use messages a second, at least one in a "
                "year (1 / 31_536_000) and at most a million; to fire none, pause the queue"
            )
        if not _within(self.window, _LONGEST):
            raise BadOption(
                f"limit: window={self.window!r}: use {FORM}, more than 0 and at most a day"
            )

    def __repr__(self) -> str:
        given = [("in_flight", self.in_flight), ("per_second", self.per_second)]
        parts = [] if self.column is None else [repr(self.column)]
        parts += [] if self.name is None else [f"name={self.name!r}"]
        parts += [f"{name}={value}" for name, value in given if value is not None]
        if self.window != 1.0:
            parts.append(f"window={self.window}")
        return f"limit({', '.join(parts)})"

    __str__ = __repr__


def limit(
    column: str | None = None,
    *,
    name: str | None = None,
    in_flight: int | None = None,
    per_second: float | None = None,
    window: Duration = 1.0,
) -> Limit:
    """
    Return a limit on the messages of a queue, for its setting `limits`.

    All processes that fire from the queue share it, and all queues of the store that have a limit
    of the same name. A message counts when it is fired from main, by the clock of the catalog.

    Args:
        column: The name of a column of strings, whole numbers or booleans: each of its values,
            null among them, has the limit. By default, the whole queue has it.
        name: A name of 1 to 100 printable characters. All queues whose setting `limits` has one of
            this name share its rate and its number of messages in flight, and have the same values
            of it. A limit with a column cannot have a name. By default, the limit is not shared.
        in_flight: The most messages that all consumers together have in flight, 1 or more. By
            default, no limit.
        per_second: The most messages that are fired per second, on average: from one in a year,
            1 / 31,536,000, to a million. By default, no limit.
        window: For how long unused firings are kept, in seconds, or as a text such as ``"10s"`` or
            a ``timedelta``, more than 0, up to a day: after a pause, the messages of one window may
            be fired at once. For a query whose batches take longer than a second, use the longest
            time of a batch. By default, 1.

    Returns:
        The limit.

    Raises:
        BadOption: A value is out of range, neither *in_flight* nor *per_second* is given, or both
            *column* and *name* are.
    """
    return Limit(
        column=column,
        name=name,
        in_flight=in_flight,
        per_second=per_second,
        window=in_seconds(window),
    )


_FORM = (
    "write it as limit(in_flight=100, per_second=10) or limit('customer', in_flight=2), several "
    "separated by commas"
)


def as_limits(given: object) -> tuple[Limit, ...]:
    """Return limits that are given as a value, several, a text or None; raises `BadOption`."""
    if given is None:
        return ()
    if isinstance(given, Limit):
        given = (given,)
    if isinstance(given, str):
        found = _parsed(given)
    else:
        found = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if not isinstance(each, Limit):
            raise BadOption(f"limits={given!r}: {_FORM}")
    if len({(each.column, each.name) for each in found}) < len(found):
        raise BadOption(
            f"limits={text_of(found)!r}: give one limit of the whole queue, one of each name, and "
            "one of each column"
        )
    return found


def by_name(limits: Iterable[Limit]) -> dict[str, Limit]:
    """Return those of some limits that have a name, by their names."""
    return {each.name: each for each in limits if each.name is not None}


def text_of(limits: Iterable[Limit]) -> str:
    """Return the text of limits, which `as_limits` reads."""
    return ", ".join(map(str, limits))


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[Any, ...]:
    return tuple(of_calls("limits", text, {"limit": limit, "Limit": limit}, _FORM))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable()


def _within(value: object, most: float) -> bool:
    return is_number(value) and 0 < value <= most < inf
