"""Parameters: what pages and actions may be asked for, and what a request asks for, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from queue_core.errors import BadOption
from queue_core.values.names import nearest

#: The words for yes and no.
YES = ("1", "true", "yes", "on")
NO = ("0", "false", "no", "off")


class Parameter(NamedTuple):
    """A parameter of a page or an action, as the API and the forms have it."""

    name: str
    #: What it is, for the API and below its field.
    about: str = ""
    #: What its field is called.
    label: str = ""
    #: ``text``, ``number``, ``check``, ``ids`` or ``select`` with options.
    kind: str = "text"
    options: tuple[str, ...] = ()

    @property
    def type(self) -> Any:
        """Its type in a query."""
        return {"number": int, "check": bool}.get(self.kind, str)

    @property
    def type_in_json(self) -> Any:
        """Its type in a body."""
        return str | int | list[int | str] if self.kind == "ids" else self.type


#: Parameters that choose a group of the sideline, on its page and for actions.
GROUP = (
    Parameter(
        "group",
        "1: the messages of the group of *kind* and *fingerprint* in the sideline.",
        "Group of the sideline",
    ),
    Parameter("kind", "The kind of the failures; empty: none.", "Kind"),
    Parameter(
        "fingerprint", "The reason, with * for its values; empty: none.", "Reason, without values"
    ),
    Parameter(
        "reason", "Only with this first line of the reason; empty: all.", "First line of the reason"
    ),
)


@dataclass(frozen=True, slots=True)
class Ask:
    """The parameters of a request, from its path, its query and its form."""

    path: Mapping[str, str]
    values: Mapping[str, str] = field(default_factory=dict)
    #: The parameters that were true or false in JSON.
    booleans: frozenset[str] = frozenset()

    @property
    def queue(self) -> str:
        """The name of the queue in the path."""
        return self.path["queue"]

    def text(self, name: str) -> str | None:
        """Return a parameter; None if it is missing or empty."""
        return self.values.get(name, "").strip() or None

    @property
    def group(self) -> tuple[str | None, str | None, str | None]:
        """The kind, the fingerprint and the first line of a group of the sideline."""
        values = self.values
        return self.text("kind"), values.get("fingerprint") or None, values.get("reason") or None

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return a parameter that is one of some words, by default the first; or `BadOption`."""
        value = self.text(name) or allowed[0]
        if value not in allowed:
            raise BadOption(f"{name}={value!r}: use {', '.join(allowed)}")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number from *low* to *high*; raises `BadOption`."""
        value = self.text(name)
        if value is None:
            return default
        # Python refuses to read thousands of digits.
        number = int(value) if value.isascii() and value.isdigit() and len(value) <= 20 else -1
        if not low <= number <= high:
            raise BadOption(f"{name}={value!r}: use a whole number from {low} to {high}")
        return number

    def rate(self, name: str) -> float | None:
        """Return messages a second, or None; raises `BadOption`."""
        text = self.text(name)
        if text is None:
            return None
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 0 < rate < inf:
            raise BadOption(f"{name}={text!r}: use messages a second, more than 0, such as 100")
        return rate

    def flag(self, name: str) -> bool:
        """Return whether a parameter says yes; it is no by default. Raises `BadOption`."""
        value = (self.text(name) or NO[0]).lower()
        if value not in YES + NO:
            raise BadOption(f"{name}={value!r}: use {', '.join(YES)}, or {', '.join(NO)}")
        return value in YES

    def only(self, known: Sequence[str]) -> None:
        """Raise `BadOption` for a parameter that is not known: it would be left out silently."""
        for name in self.values:
            if name not in known:
                use = f"{nearest(name, known)}; use {', '.join(known)}"
                raise BadOption(f"{name[:40]!r} is not a parameter here{use}")
