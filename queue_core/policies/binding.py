"""Check that a policy and a de-duplication fit a queue, and bind them to it.

The catalog stores a policy by its text or its import path, ``module:name``. The path is resolved by
Python's own import, in every process that loads. Nothing is unpickled: only code that is installed
there can be named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from queue_core.errors import BadOption
from queue_core.support import import_paths
from queue_core.values.settings import DEFAULT_SHARDS, QueueSettings

if TYPE_CHECKING:
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check
    from queue_core.policies.inputs import BoundPolicy


def check(
    settings: QueueSettings,
    schema: pa.Schema,
    key: str | None,
    shards: int,
    *,
    imports: bool = True,
) -> None:
    """
    Raise `BadOption` unless the policy and the de-duplication of some settings fit a queue.

    Without *imports*, a policy with an import path is not imported.
    """
    dedup_schema(settings.dedup, schema)
    if settings.dedup:
        _check_keeps("dedup", settings)
    if settings.policy is not None:
        _check_queue(key, settings, shards)
        if imports or not import_paths.is_path(settings.policy):
            bind(settings.policy, schema, key, settings, shards)


def bind(
    policy: Policy | Check | str,
    schema: pa.Schema,
    key: str | None,
    settings: QueueSettings,
    shards: int = DEFAULT_SHARDS,
) -> BoundPolicy:
    """
    Bind a policy to a queue.

    A policy is a text, a value, or a function that checks one new and one queued message. A text
    can be the import path of a value or a function. Raises `BadOption`.
    """
    _check_queue(key, settings, shards)
    if isinstance(policy, str):
        if not import_paths.is_path(policy):
            return _parsed(policy, schema, key)
        policy = imported(policy)
    if hasattr(policy, "bind"):
        return policy.bind(schema, key)
    if callable(policy):
        from queue_core.policies.checks import per_message

        return per_message(policy).bind(schema, key)
    raise BadOption(f"policy={policy!r}: use a text, a policy value or a function")


def _check_queue(key: str | None, settings: QueueSettings, shards: int) -> None:
    if key is None and shards != 1:
        raise BadOption(
            "policy: a policy compares messages of one key; give the queue a key, or shards=1 to "
            "compare all of its messages"
        )
    _check_keeps("policy", settings)


def _check_keeps(name: str, settings: QueueSettings) -> None:
    if settings.is_rendezvous:
        raise BadOption(
            f"{name}: a queue with max_size=0 keeps no messages to compare new ones with; set "
            f"{name} or max_size to none"
        )


@lru_cache(maxsize=64)
def _parsed(text: str, schema: pa.Schema, key: str | None) -> BoundPolicy:
    # Not at the top: the SQL parser takes long to import, and few queues have a policy.
    from queue_core.policies.parsing import parse

    return parse(text, schema, key).bind(schema, key)


def dedup_schema(names: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """Return the schema of the de-duplication key; raises `BadOption`."""
    from queue_core.policies.numbering import check_comparable

    check_comparable("dedup", schema, names)
    for name in names:
        if list(names).count(name) > 1:
            raise BadOption(f"dedup: column {name!r} is named twice; name it once")
    # Keys are the same whatever the order in which their columns are named.
    return pa.schema([schema.field(name).with_nullable(True) for name in sorted(names)])


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
