"""Decide which new messages are loaded, and which queued ones are deleted or overwritten.

Pure: touches no catalog. De-duplication comes first; the policy does not see messages that it
leaves out, nor those that have expired.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from queue_core.catalog.records.dedup import KnownKeys
from queue_core.errors import BadOption
from queue_core.policies import binding
from queue_core.policies.inputs import BoundPolicy, PolicyInput, PolicyResult
from queue_core.policies.numbering import matched
from queue_core.values.column_roles import expiring
from queue_core.values.model import QueueInfo
from queue_core.values.rows import Numbers
from queue_core.waiting.smart.incoming import Incoming
from queue_core.waiting.smart.snapshot import QueuedMessages, are_valid

if TYPE_CHECKING:
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check


def policy_of(queue: QueueInfo, policy: Policy | Check | str | None = None) -> BoundPolicy | None:
    """
    Return the policy of a queue's settings, or *policy* in its place; None: there is none.

    Raises `BadOption`, also for a policy in place of the queue's own: it holds for all producers.
    """
    settings = queue.settings
    if policy is not None and settings.policy not in (None, policy):
        raise BadOption(
            f"policy={policy!r}: queue {queue.name!r} has the policy {settings.policy!r}, "
            "which all loads go through; leave the argument out, or change the queue's setting"
        )
    if policy is not None and settings.log is not None:
        raise BadOption(
            f"policy={policy!r}: queue {queue.name!r} keeps a log, which would not have what "
            "the queue has; leave the argument out, or set log to none"
        )
    chosen = settings.policy if policy is None else policy
    if chosen is None:
        return None
    return binding.bind(chosen, queue.schema, queue.key, settings, queue.shards)


def decide(
    queue: QueueInfo,
    policy: BoundPolicy | None,
    incoming: Incoming,
    queued: QueuedMessages | None,
    known: KnownKeys | None,
) -> PolicyResult:
    """
    Decide by the queued messages (policy) and by the known keys (de-duplication).

    The result is about all new messages, and about the queued ones by their numbers in *queued*.
    """
    rows = np.arange(len(incoming)) if known is None else np.flatnonzero(known.is_new)
    kept = np.zeros(len(incoming), np.bool_)
    kept[rows] = True
    expires = expiring(queue.settings, queue.schema)
    if queued is not None and expires is not None:
        valid = are_valid(incoming.columns([expires]).column(expires), queued.now)
        rows = rows[valid[rows]]
    result = PolicyResult(kept=np.ones(len(rows), np.bool_))
    if policy is not None and queued is not None and len(rows):
        result = _evaluated(queue, policy, incoming, rows, queued)
    kept[rows] = result.kept
    own = replace(result.overwritten_new, rows=rows[result.overwritten_new.rows])
    return replace(result, kept=kept, overwritten_new=own)


def columns_read(queue: QueueInfo, policy: BoundPolicy) -> list[str]:
    """Return the columns of messages that a policy reads, at least one."""
    return list(dict.fromkeys([queue.key or queue.schema.names[0], *policy.columns]))


def _evaluated(
    queue: QueueInfo,
    policy: BoundPolicy,
    incoming: Incoming,
    rows: Numbers,
    queued: QueuedMessages,
) -> PolicyResult:
    """Evaluate the policy for some new messages and the queued messages of their keys."""
    new = incoming.columns(columns_read(queue, policy)).take(pa.array(rows))
    # Without a key, all messages are of one.
    keys = [] if queue.key is None else [queue.key]
    new_keys, queued_keys = matched(new, queued.columns, keys)
    same_key = np.flatnonzero(queued_keys >= 0)
    inputs = PolicyInput(
        new=new.select(list(policy.columns)),
        queued=queued.columns.select(list(policy.columns)).take(pa.array(same_key)),
        new_keys=new_keys,
        queued_keys=queued_keys[same_key],
        retrieved=queued.retrieved[same_key],
        new_shards=incoming.shards[rows],
        queued_shards=queued.shard[same_key],
        waiting_after=queued.waiting_after[same_key],
    )
    result = policy.evaluate(inputs)
    overwritten = replace(result.overwritten, rows=same_key[result.overwritten.rows])
    return replace(
        result,
        deleted=same_key[result.deleted],
        consulted=same_key[result.consulted],
        overwritten=overwritten,
    )
