"""A value or a type that does not fit, and where it is: users read it in reasons and in errors."""

from __future__ import annotations


class Misfit(ValueError):
    """A value that does not fit its type, or a type that no column can hold; and where it is."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self._problem, self._path = problem, path

    def within(self, step: str) -> Misfit:
        """Return the same with a longer path, as seen from the enclosing value."""
        between = "." if self._path and not self._path.startswith("[") else ""
        return Misfit(self._problem, f"{step}{between}{self._path}")
