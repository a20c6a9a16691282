"""What a request asks for: its parameters, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from queue_core.errors import BadOption


@dataclass(frozen=True, slots=True)
class Ask:
    """The parameters of a request, from its path, its query and its form."""

    path: Mapping[str, str]
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def queue(self) -> str:
        """The name of the queue in the path."""
        return self.path["queue"]

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a parameter, or the default if it is missing or empty."""
        return self.values.get(name, "").strip() or default

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return a parameter that is one of some words, by default the first; or `BadOption`."""
        value = self.text(name, allowed[0])
        if value not in allowed:
            raise BadOption(f"{name}={value!r}: use {', '.join(allowed)}")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number from *low* to *high*; raises `BadOption`."""
        value = self.text(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or not low <= int(value[:20]) <= high:
            raise BadOption(f"{name}={value!r}: use a whole number from {low} to {high}")
        return int(value)
