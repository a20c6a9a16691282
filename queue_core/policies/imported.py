"""Policies that the catalog stores by their import path, ``module:name``.

The path is resolved by Python's own import, in every process that loads. Nothing is unpickled: only
code that is installed there can be named.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from queue_core.errors import BadOption
from queue_core.support import import_paths


def imported(path: str) -> Any:
    """Return the function or the policy value of an import path; raises `BadOption`."""
    found = import_paths.imported(path, f"policy {path!r}")
    if isinstance(found, str | type) or not (callable(found) or hasattr(found, "bind")):
        raise BadOption(
            f"policy {path!r} is {found!r}; it must be a function of a new and a queued message, "
            "or a value of vectorised() or per_message()"
        )
    return found


def storable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which a function as the policy is its path; raises `BadOption`."""
    policy = settings.get("policy")
    if policy is None or isinstance(policy, str):
        return dict(settings)
    if not isinstance(policy, FunctionType):
        raise BadOption(
            f"policy={policy!r} cannot be stored: give its text, such as 'latest', or the import "
            "path of a variable that has it, such as 'shop.policies:newest'; for one load only, "
            "pass it to load(rows, policy=…)"
        )
    path = import_paths.path_of(policy)
    if path is None:
        raise BadOption(
            f"policy={policy.__qualname__} cannot be stored, because other processes cannot import "
            f"it from {policy.__module__!r}: define it at the top of an installed module, or use "
            "a text such as 'latest'"
        )
    return {**settings, "policy": path}
