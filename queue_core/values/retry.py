"""`Retry`: how often and when a message that failed is tried again.

A policy has a text, such as ``Retry(attempts=5, backoff=exponential(1, max=3600))``, which the
stored settings, the command line and the options of Spark use. Source: the policies of River, Oban
and SQS.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from queue_core.errors import BadOption
from queue_core.values.backoff import Backoff, constant, exponential
from queue_core.values.durations import LONGEST_SECONDS, is_whole
from queue_core.values.names import is_kind
from queue_core.values.options import of_calls

#: The waits of a policy that names none.
_USUAL = exponential(1, factor=2, max=3600, jitter=0.2)
#: The kind of the failure when a handler raises an exception.
_EXCEPTION = "exception"
#: The kind of the failure when a handler returns something that is not a decision.
_UNDECIDED = "undecided"


def _failures(name: str, given: Any) -> tuple[str | type[Exception], ...]:
    if not isinstance(given, str | type | Iterable):
        raise BadOption(
            f"{name}={given!r}: name failures by their kinds, such as 'timeout', or by exception "
            "classes"
        )
    listed = (given,) if isinstance(given, str | type) else tuple(given)
    for each in listed:
        is_class = isinstance(each, type) and issubclass(each, Exception)
        if not is_class and not (isinstance(each, str) and is_kind(each)):
            raise BadOption(
                f"{name}: {each!r} is neither the kind of a failure, such as 'timeout', nor a "
                "subclass of Exception"
            )
    return listed


@dataclass(frozen=True, slots=True, repr=False, init=False)
class Retry:
    """
    How often and when a message that failed is tried again.

    A message that failed waits in the sideline until its time comes, and then returns to main.
    After the last attempt it is dead: it stays in the sideline until a person acts.

    Args:
        attempts: How often a message is tried in all, 1 or more; 1: it is not tried again. None: no
            limit.
        backoff: The waits between the attempts: `exponential` or `constant`.
        on: Only these failures are retried: kinds, such as ``"timeout"`` (the column ``kind`` of
            the view ``failures``), and for a handler also exception classes. By default, all but
            ``"undecided"``: the handler has done its work, and would do it again.
        not_on: These failures are not retried: kinds and exception classes, as in *on*.

    Raises:
        BadOption: A value is out of range.
    """

    attempts: int | None = 5
    backoff: Backoff = _USUAL
    on: tuple[str | type[Exception], ...] | None = None
    not_on: tuple[str | type[Exception], ...] = ()

    def __init__(
        self,
        attempts: int | None = 5,
        backoff: Backoff = _USUAL,
        on: str | type[Exception] | Sequence[str | type[Exception]] | None = None,
        not_on: str | type[Exception] | Sequence[str | type[Exception]] = (),
    ) -> None:
        if attempts is not None and not (is_whole(attempts) and 1 <= attempts <= 2**31 - 1):
            raise BadOption(f"attempts={attempts!r}: use a whole number, 1 or more, or None")
        if not isinstance(backoff, Backoff):
            raise BadOption(f"backoff={backoff!r}: use exponential(…) or constant(…)")
        object.__setattr__(self, "attempts", attempts)
        object.__setattr__(self, "backoff", backoff)
        object.__setattr__(self, "on", None if on is None else _failures("on", on))
        object.__setattr__(self, "not_on", _failures("not_on", not_on))
        if self.on == ():
            raise BadOption("on=(): name at least one failure; attempts=1 retries none")

    @staticmethod
    @lru_cache(maxsize=256)
    def parse(text: str) -> Retry:
        """
        Return the policy that a text describes, as ``str`` of a policy gives it.

        Args:
            text: Such as ``Retry(attempts=5, backoff=exponential(1, factor=3, max=600))``, as in
                Python. Failures are named by their kinds.

        Returns:
            The policy.

        Raises:
            BadOption: The text is not a policy.
        """
        match of_calls("retry", text, _MAKERS, _FORM):
            case [Retry() as found]:
                return found
        raise BadOption(f"retry={text!r}: {_FORM}")

    @property
    def classes(self) -> tuple[type[Exception], ...]:
        """The exception classes that the policy names."""
        return tuple(each for each in (*(self.on or ()), *self.not_on) if isinstance(each, type))

    def retries(self, kind: str) -> bool:
        """
        Return whether failures of a kind are retried.

        Args:
            kind: A kind, such as ``"timeout"``.

        Returns:
            Whether they are, as far as the kind says.
        """
        wanted = kind != _UNDECIDED if self.on is None else kind in self.on
        return wanted and kind not in self.not_on

    def retries_error(self, error: BaseException) -> bool:
        """
        Return whether a message is retried after its handler raised an exception.

        Args:
            error: The exception.

        Returns:
            Whether it is.
        """

        def names(given: Sequence[str | type[Exception]]) -> bool:
            return any(
                isinstance(error, each) if isinstance(each, type) else each == _EXCEPTION
                for each in given
            )

        return (self.on is None or names(self.on)) and not names(self.not_on)

    def by_kinds(self) -> Retry:
        """
        Return the policy without exception classes, for the catalog.

        Exceptions are judged where the handler runs. The catalog retries all others.

        Returns:
            The policy.
        """
        on = self.on
        if on is not None and any(isinstance(each, type) for each in on):
            kinds = [each for each in on if isinstance(each, str)]
            on = tuple(dict.fromkeys([*kinds, _EXCEPTION]))
        kinds = [each for each in self.not_on if isinstance(each, str)]
        return Retry(self.attempts, self.backoff, on, kinds)

    def wait(self, failures: int, chance: float | None = None) -> float | None:
        """
        Return for how long a message waits.

        Args:
            failures: How often it has failed.
            chance: A number from 0 to 1, for the jitter. By default, at random.

        Returns:
            Seconds; None if it is not tried again.
        """
        if self.attempts is not None and failures >= self.attempts:
            return None
        chance = random.random() if chance is None else chance
        share = self.backoff.jitter * (2 * chance - 1)
        return min(self.backoff.seconds(failures) * (1 + share), LONGEST_SECONDS)

    def __repr__(self) -> str:
        parts = [f"attempts={self.attempts}", f"backoff={self.backoff!r}"]
        for name, given in (("on", self.on), ("not_on", self.not_on)):
            if given:
                names = [each if isinstance(each, str) else each.__name__ for each in given]
                parts.append(f"{name}={names!r}")
        return f"Retry({', '.join(parts)})"

    __str__ = __repr__


#: The policy of a new queue: ten attempts in about three and a half hours.
DEFAULT_RETRY = Retry(attempts=10, backoff=exponential(5, factor=3, max=3600, jitter=0.2))

_FORM = (
    "write it as Retry(attempts=5, backoff=exponential(1, factor=2, max=3600, jitter=0.2)) or "
    "Retry(attempts=5, backoff=constant(60)), optionally with on=['timeout'] or "
    "not_on=['rejected']: failures by their kinds, since only a Retry of Python can name exception "
    "classes"
)
_MAKERS: dict[str, Callable[..., Any]] = {
    "Retry": Retry,
    "retry": Retry,
    "exponential": exponential,
    "constant": constant,
}


def check_kinds_only(retry: Retry) -> Retry:
    """Return a policy without exception classes; raises `BadOption` for one with classes."""
    if retry.classes:
        names = ", ".join(each.__name__ for each in retry.classes)
        raise BadOption(
            f"retry={retry}: only the policy of a handler can name exception classes ({names}); "
            "give it to the handler, as retry= of ConsumerPool or consume, or name kinds, such as "
            "'exception'"
        )
    return retry


def as_retry(given: object) -> Retry | None:
    """Return a policy that is given as a value, a text or None; raises `BadOption`."""
    if given is None or isinstance(given, Retry):
        return given
    if isinstance(given, str):
        return Retry.parse(given)
    raise BadOption(f"retry={given!r}: give a Retry, its text, or None")


def of_kinds(given: object) -> Retry | None:
    """Return a policy without exception classes, or None; raises `BadOption`."""
    retry = as_retry(given)
    return None if retry is None else check_kinds_only(retry)
