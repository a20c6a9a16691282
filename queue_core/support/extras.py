"""What to say when a library of an extra is missing."""

from __future__ import annotations

from queue_core.errors import BadOption


def missing(asked: str, error: ModuleNotFoundError, extra: str) -> BadOption:
    """Return the error for what a user *asked* for, and which *extra* brings its library."""
    return BadOption(f"{asked}: {error.name} is not installed: pip install 'ignis-queue[{extra}]'")
