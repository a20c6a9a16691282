"""`Breaker`: the user's description of a circuit breaker, and its text form."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from queue_core.errors import BadOption
from queue_core.support.import_paths import imported, is_path, path_of
from queue_core.values.durations import FORM, Duration, check_whole, in_seconds, is_number
from queue_core.values.names import SIDELINE_SUFFIX

#: The longest name of a breaker.
LONGEST_NAME = 200
#: Calls that are considered at most.
_MOST_CALLS = 10_000


@dataclass(frozen=True, slots=True, init=False)
class Breaker:
    """
    A circuit breaker of a handler: firing stops while too many of its calls fail.

    A call fails if it takes too long, or raises an exception other than `Later`, `Reject` and
    ignorable ones. A batch handler makes one call per message. While the breaker is open, no
    messages are fired, and messages that were fired before are reloaded, which counts as no
    attempt. After a pause, a probe fires one message. If its call succeeds, the breaker closes;
    otherwise, the message is sidelined and the pause doubles. The catalog keeps the state, so all
    processes with the same *name* share it.

    Args:
        share: The breaker opens when this share of the last *of* calls failed; more than 0, at most
            1. Calls that were not made yet count as successful.
        of: The number of calls that are considered, from 1 to 10000.
        pause: Seconds from the opening to the first probe, or a text such as ``"30s"`` or a
            ``timedelta``; more than 0, up to a day.
        max_pause: The longest pause between two probes, likewise; at least *pause*.
        check: A function that is called instead of a probe, or its import path ``module:name``. It
            takes no argument, and returns True if the handler's calls would succeed now. In Spark,
            only functions with an import path can be used. By default, messages are the probes.
        name: The breaker's name. By default, the sorted names of its queues, joined by commas.

    Raises:
        BadOption: An argument is out of range.
    """

    share: float
    of: int
    pause: float
    max_pause: float
    check: Callable[[], object] | str | None
    name: str | None

    def __init__(
        self,
        *,
        share: float = 0.5,
        of: int = 20,
        pause: Duration = 1.0,
        max_pause: Duration = 4.0,
        check: Callable[[], object] | str | None = None,
        name: str | None = None,
    ) -> None:
        given = (share, of, in_seconds(pause), in_seconds(max_pause), check, name)
        for field, value in zip(_DEFAULTS, given, strict=True):
            object.__setattr__(self, field, value)
        self._check()

    def _check(self) -> None:
        if not _fits(self.share, 1):
            raise BadOption(f"breaker: share={self.share!r}: use more than 0, and at most 1")
        check_whole("breaker: of", self.of, 1, _MOST_CALLS)
        for name in ("pause", "max_pause"):
            value = getattr(self, name)
            if not _fits(value, 86_400):
                raise BadOption(f"breaker: {name}={value!r}: use {FORM}, more than 0, up to a day")
        if self.max_pause < self.pause:
            raise BadOption(
                f"breaker: max_pause={self.max_pause:g} is less than pause={self.pause:g}; give a "
                "max_pause that is at least as long"
            )
        if self.name is not None:
            check_name(self.name)
        has_path = isinstance(self.check, str) and is_path(self.check)
        if not (self.check is None or callable(self.check) or has_path):
            raise BadOption(
                f"breaker: check={self.check!r}: give a function, or its import path such as "
                "'shop.health:is_up'"
            )

    def __str__(self) -> str:
        """Return the text form; it can be parsed if *check* has an import path."""
        check = self.check
        path = (path_of(check) or repr(check)) if callable(check) else check
        values = {name: getattr(self, name) for name in _DEFAULTS} | {"check": path}
        return json.dumps({name: each for name, each in values.items() if each != _DEFAULTS[name]})

    @staticmethod
    def parse(text: str) -> Breaker:
        """
        Read the text form of a breaker.

        Args:
            text: A JSON object of the arguments, such as ``{"of": 50, "pause": 2}``.

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

    def asks(self) -> Callable[[], object] | None:
        """
        Return the function *check*.

        Returns:
            The function, imported if *check* is a path; None if messages are the probes.

        Raises:
            BadOption: The path cannot be imported, or the function needs an argument.
        """
        check = self.check
        if isinstance(check, str):
            check = imported(check, f"breaker: check={check!r}")
        if check is None:
            return None
        try:
            inspect.signature(check).bind()
        except ValueError:
            # Some functions in C have no signature.
            return check
        except TypeError as error:
            raise BadOption(
                f"breaker: check={check!r} is called with no argument, and cannot be: {error}"
            ) from error
        return check


def check_name(name: object) -> None:
    """Raise `BadOption` unless *name* can be the name of a breaker."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise BadOption(f"breaker: name={name!r}: use a text of 1 to {LONGEST_NAME} characters")


def name_for(queues: Sequence[str]) -> str:
    """Return the name of the breaker of a handler of some queues, if the user gives none."""
    # Source and sink may name a queue and its sideline for the same messages.
    names = ",".join(sorted(each.removesuffix(SIDELINE_SUFFIX) for each in queues))
    return names if len(names) <= LONGEST_NAME else hashlib.sha256(names.encode()).hexdigest()


def text_of(breaker: Breaker) -> str:
    """Return the text form for other processes; raises `BadOption` for a local check."""
    if callable(breaker.check) and path_of(breaker.check) is None:
        raise BadOption(
            f"breaker: check={breaker.check!r} has no import path; define it at the top of an "
            "installed module"
        )
    return str(breaker)


_DEFAULTS = {
    name: parameter.default for name, parameter in inspect.signature(Breaker).parameters.items()
}


def _fits(value: Any, most: float) -> bool:
    return is_number(value) and 0 < value <= most
