"""A mistake, as a change of a text."""

from __future__ import annotations

from dataclasses import dataclass

_CONTRACT = "tests/contract/test_{}.py"
RACES = "tests/processes/interleavings"


@dataclass(frozen=True)
class Mutant:
    """A mistake: *old* occurs once in *file*, and becomes *new*."""

    name: str
    file: str
    old: str
    new: str
    #: Tests that should find it, if the simulation does not.
    tests: tuple[str, ...]


def of(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """Return a mutant; tests of contracts are given by their names alone."""
    paths = (test if "/" in test else _CONTRACT.format(test) for test in tests)
    return Mutant(name, f"{file}.py", old, new, tuple(paths))
