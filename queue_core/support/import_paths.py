"""Import paths, ``module:name``, by which other processes find objects, and missing libraries."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from typing import Any

from queue_core.errors import BadOption

_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_path(text: str) -> bool:
    """Return whether a text is an import path."""
    return _PATH.fullmatch(text.strip()) is not None


def imported(path: str, what: str) -> Any:
    """Import what a path names; raises `BadOption`, which calls the path *what*."""
    module, _, names = path.strip().partition(":")
    try:
        return reduce(getattr, names.split("."), import_module(module))
    except Exception as error:
        # The module may raise anything when it is imported.
        raise BadOption(
            f"{what} cannot be imported here: {type(error).__name__}: {error}; each process that "
            "uses it needs the module"
        ) from error


def path_of(value: Any) -> str | None:
    """Return the import path of a function; None if other processes cannot import it."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    path = f"{module}:{name}"
    if module in (None, "__main__") or not is_path(path):
        return None
    try:
        return path if imported(path, path) is value else None
    except BadOption:
        return None


def missing(asked: str, error: ModuleNotFoundError, extra: str) -> BadOption:
    """Return the error for what a user *asked* for, whose library the *extra* installs."""
    return BadOption(f"{asked}: {error.name} is not installed: pip install 'ignis-queue[{extra}]'")
