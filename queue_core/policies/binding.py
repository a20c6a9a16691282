"""A policy and a de-duplication, checked against the queue that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from queue_core.errors import BadOption
from queue_core.names import nearest
from queue_core.policies.inputs import BoundPolicy
from queue_core.settings import QueueSettings

if TYPE_CHECKING:
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check


def check(settings: QueueSettings, schema: pa.Schema, key: str | None) -> None:
    """Raise `BadOption` unless the policy and the de-duplication of some settings fit a queue."""
    dedup_schema(settings.dedup, schema)
    if settings.policy is not None:
        bind(settings.policy, schema, key, settings)


def bind(
    policy: Policy | Check | str | None, schema: pa.Schema, key: str | None, settings: QueueSettings
) -> BoundPolicy | None:
    """
    Make a policy, as a value or as text, ready for a queue; None stays None.

    A function is taken for a check of one new and one queued message. Raises `BadOption`.
    """
    if policy is None:
        return None
    if key is None:
        raise BadOption("policy: only messages of one key meet; give the queue a key")
    if settings.is_rendezvous:
        raise BadOption("policy: with max_size=0 no message is queued that a new one could meet")
    if isinstance(policy, str):
        return _understood(policy, schema, key)
    if hasattr(policy, "bind"):
        return policy.bind(schema, key)
    if callable(policy):
        from queue_core.policies.checks import per_message

        return per_message(policy).bind(schema, key)
    raise BadOption(f"policy={policy!r}: use a text, a policy or a function")


@lru_cache(maxsize=64)
def _understood(text: str, schema: pa.Schema, key: str) -> BoundPolicy:
    # Not at the top: a SQL parser takes long to import, and few queues have a policy.
    from queue_core.policies.parsing import parse

    return parse(text, schema, key).bind(schema, key)


def dedup_schema(names: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """The columns by which messages are known again; raises `BadOption`."""
    from queue_core.policies.numbering import check_comparable

    for name in names:
        if name not in schema.names:
            raise BadOption(
                f"dedup: {name!r} is no column of the queue{nearest(name, schema.names)}"
            )
        if list(names).count(name) > 1:
            raise BadOption(f"dedup: {name!r} is there twice")
    check_comparable("dedup", schema, names)
    return pa.schema([schema.field(name).with_nullable(True) for name in names])
