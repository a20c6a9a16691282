"""Figures as text: numbers, ages and times. An unknown figure is the word, and never 0."""

from __future__ import annotations

from datetime import UTC, datetime

#: How an unknown figure is shown.
UNKNOWN = "unknown"
#: How the absence of a thing is shown.
NONE = "–"  # noqa: RUF001

#: What helps messages of the sideline that would expire in main.
TOO_OLD = "set message_expiry longer or none, edit their own time, or shovel them to another queue"

#: The time 0.
EPOCH = datetime.fromtimestamp(0, UTC)

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def number(value: float | None) -> str:
    """Return a number with separators between thousands."""
    if value is None:
        return UNKNOWN
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2f}"


def rate(value: float | None) -> str:
    """Return a number per second."""
    return UNKNOWN if value is None else f"{number(value)}/s"


def age(seconds: float | None, *, brief: bool = False) -> str:
    """
    Return seconds in the two largest units, such as ``2 h 5 min``.

    If it is *brief*, in one unit from ten of it on, and in minutes: ``21 min``, ``12 h``.
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = int(seconds)
    for place, (size, unit) in enumerate(_UNITS):
        if whole >= size:
            count, rest = divmod(whole, size)
            is_one = unit == "s" or (brief and (count >= 10 or unit == "min"))
            finer = 0 if is_one else rest // _UNITS[place + 1][0]
            return f"{count} {unit}" + (f" {finer} {_UNITS[place + 1][1]}" if finer else "")
    return "0 s"


def took(seconds: float | None) -> str:
    """Return the seconds that something took, in milliseconds if they are few."""
    if seconds is None or seconds >= 1:
        return age(seconds)
    return f"{seconds * 1000:.3g} ms"


def size(count: float | None) -> str:
    """Return bytes in the largest unit, such as ``1.4 GB``."""
    if count is None:
        return UNKNOWN
    for unit in ("bytes", "kB", "MB", "GB"):
        # As it is shown: 999.96 kB are 1.0 MB.
        if round(count) < 1000:
            digits = 0 if unit == "bytes" or round(count, 1) >= 100 else 1
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def counted(count: int | None, one: str = "message", more: str = "messages") -> str:
    """Return a number with its noun, and its verb if there is one: ``1 message is``."""
    return f"{number(count)} {one if count == 1 else more}"


def moment(micros: int | None) -> datetime | None:
    """Return microseconds since 1970 as a time in UTC."""
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def clock(time: datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return NONE if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
