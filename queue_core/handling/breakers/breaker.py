"""`Breaker`: the user's description of a circuit breaker, and its text form."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

from queue_core.errors import BadOption
from queue_core.values.durations import FORM, Duration, in_seconds

#: A key of a breaker without a column: the whole handler.
WHOLE = ""
#: Calls that a window holds at most.
MOST_CALLS = 10_000

_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True, init=False)
class Breaker:
    """
    A circuit breaker of a handler: firing stops while too many of its calls fail.

    A call fails if it raises an exception that is not ignorable, or takes too long. A batch handler
    makes one call per message. While the breaker is open, no messages are fired, and messages that
    were fired before are reloaded, which counts as no attempt. After a pause, a probe fires one
    message. If its call succeeds, the breaker closes; otherwise, the message is sidelined and the
    pause doubles. The catalog keeps the state, so all processes with the same *name* share it.

    Args:
        share: The breaker opens when this share of the last *of* calls failed; more than 0, at most
            1. Calls that were not made yet count as successful.
        of: The number of calls that are considered, from 1 to 10000.
        pause: Seconds from the opening to the first probe, or a text such as ``"30s"`` or a
            ``timedelta``; more than 0, up to a day.
        max_pause: The longest pause between two probes, likewise; at least *pause*.
        by: A column of the queues, of strings, whole numbers or booleans. Each of its values has a
            state of its own, and an open one holds back only messages with that value. Values of
            more than about 300 characters have no state, and are never held back; a warning says
            so when too many of their calls fail. By default, the handler has one state.
        check: A function that is called instead of a probe, or its import path ``module:name``. It
            takes no argument, or with *by* the value (None for the whole handler, which a person
            can open), and returns True if the handler's calls would
            succeed now. In Spark, only functions with an import path can be used. By default,
            messages are the probes.
        name: The breaker's name. By default, the names of its queues, joined by commas.

    Raises:
        BadOption: An argument is out of range.
    """

    share: float
    of: int
    pause: float
    max_pause: float
    by: str | None
    check: Callable[..., object] | str | None
    name: str | None

    def __init__(
        self,
        *,
        share: float = 0.5,
        of: int = 20,
        pause: Duration = 1.0,
        max_pause: Duration = 4.0,
        by: str | None = None,
        check: Callable[..., object] | str | None = None,
        name: str | None = None,
    ) -> None:
        given = (share, of, in_seconds(pause), in_seconds(max_pause), by, check, name)
        for field, value in zip(_DEFAULTS, given, strict=True):
            object.__setattr__(self, field, value)
        self._check()

    def _check(self) -> None:
        if not _is_number(self.share) or not 0 < self.share <= 1:
            raise BadOption(f"breaker: share={self.share!r}: use more than 0, and at most 1")
        if (
            isinstance(self.of, bool)
            or not isinstance(self.of, int)
            or not 0 < self.of <= MOST_CALLS
        ):
            raise BadOption(f"breaker: of={self.of!r}: use a whole number from 1 to {MOST_CALLS}")
        for name in ("pause", "max_pause"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value <= 86_400:
                raise BadOption(f"breaker: {name}={value!r}: use {FORM}, more than 0, up to a day")
        if self.max_pause < self.pause:
            raise BadOption(
                f"breaker: max_pause={self.max_pause:g} is less than pause={self.pause:g}; give a "
                "max_pause that is at least as long"
            )
        if self.by is not None and (not isinstance(self.by, str) or not self.by):
            raise BadOption(f"breaker: by={self.by!r}: give the name of a column")
        if self.name is not None and (
            not isinstance(self.name, str) or not 0 < len(self.name) <= 200
        ):
            raise BadOption(f"breaker: name={self.name!r}: use a text of 1 to 200 characters")
        is_path = isinstance(self.check, str) and _PATH.fullmatch(self.check)
        if not (self.check is None or callable(self.check) or is_path):
            raise BadOption(
                f"breaker: check={self.check!r}: give a function, or its import path such as "
                "'shop.health:is_up'"
            )

    def __str__(self) -> str:
        """Return the text form; it can be parsed if *check* has an import path."""
        try:
            return text_of(self)
        except BadOption:
            return _text(self, repr(self.check))

    @staticmethod
    def parse(text: str) -> Breaker:
        """
        Read the text form of a breaker.

        Args:
            text: A JSON object of the arguments, such as ``{"of": 50, "by": "tenant"}``.

        Returns:
            The breaker.

        Raises:
            BadOption: The text is malformed, or an argument is unknown or out of range.
        """
        try:
            given = json.loads(text)
        except ValueError as error:
            raise BadOption(f"breaker: {text!r} is not JSON: {error}") from error
        if not isinstance(given, dict) or not given.keys() <= _DEFAULTS.keys():
            raise BadOption(
                f"breaker: {text!r}: give a JSON object with any of {', '.join(_DEFAULTS)}"
            )
        return Breaker(**given)

    def asks(self) -> Callable[..., object] | None:
        """
        Return the function *check*.

        Returns:
            The function, imported if *check* is a path; None if messages are the probes.

        Raises:
            BadOption: The path cannot be imported, or the function cannot take its arguments.
        """
        check = _imported(self.check) if isinstance(self.check, str) else self.check
        if check is not None:
            _check_takes(check, self.by)
        return check


def text_of(breaker: Breaker) -> str:
    """Return the text form, which `Breaker.parse` reads; raises `BadOption` for a local check."""
    return _text(breaker, None if breaker.check is None else _path_of(breaker.check))


def _text(breaker: Breaker, check: str | None) -> str:
    values = {name: getattr(breaker, name) for name in _DEFAULTS} | {"check": check}
    return json.dumps({name: value for name, value in values.items() if value != _DEFAULTS[name]})


_DEFAULTS: dict[str, Any] = {
    "share": 0.5,
    "of": 20,
    "pause": 1.0,
    "max_pause": 4.0,
    "by": None,
    "check": None,
    "name": None,
}


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _imported(path: str) -> Callable[..., object]:
    module, _, names = path.partition(":")
    try:
        found = reduce(getattr, names.split("."), import_module(module))
    except Exception as error:
        # The module may raise anything when it is imported.
        raise BadOption(
            f"breaker: check={path!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise BadOption(f"breaker: check={path!r} is {found!r}, not a function")
    return found


def _check_takes(check: Callable[..., object], by: str | None) -> None:
    """Raise `BadOption` if a function cannot take the arguments of a check."""
    try:
        signature = inspect.signature(check)
    except (TypeError, ValueError):
        # Some functions in C have none.
        return
    try:
        signature.bind(*([] if by is None else [None]))
    except TypeError as error:
        what = "no argument" if by is None else f"one argument, a value of the column {by!r}"
        raise BadOption(
            f"breaker: check={check!r} is called with {what}, but takes {signature}"
        ) from error


def _path_of(check: Callable[..., object] | str) -> str:
    if isinstance(check, str):
        return check
    module = getattr(check, "__module__", None)
    path = f"{module}:{getattr(check, '__qualname__', '')}"
    if module in (None, "__main__") or not _PATH.fullmatch(path) or _imported(path) is not check:
        raise BadOption(
            f"breaker: check={check!r} has no import path; define it at the top of an installed "
            "module"
        )
    return path
