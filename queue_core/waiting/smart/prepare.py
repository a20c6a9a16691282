"""Prepare a smart load: take a snapshot, decide, rewrite queued messages, stage the new ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection

from queue_core.catalog.records import dedup
from queue_core.segments.key_bytes import key_bytes
from queue_core.segments.stager import remove_staged
from queue_core.segments.storage import Storage
from queue_core.values.model import QueueInfo, Staged
from queue_core.waiting.smart.decide import LoadPlan, LoadPolicy, columns_read, decide
from queue_core.waiting.smart.incoming import Incoming
from queue_core.waiting.smart.rewrite import Rewritten, plan_rewrite, rewrite
from queue_core.waiting.smart.snapshot import QueuedMessages, read_queued, take_snapshot
from queue_core.waiting.smart.validate import ReadSet


@dataclass(frozen=True, kw_only=True)
class PreparedLoad:
    """A decided load, all of whose segments are durable."""

    plan: LoadPlan
    #: The queued messages that the policy saw; None without a policy.
    queued: QueuedMessages | None
    #: What was known of the messages; None without de-duplication.
    known: dedup.KnownKeys | None
    read_set: ReadSet
    #: The segments of the new messages.
    staged: tuple[Staged, ...]
    #: The segments of queued messages with new values.
    rewritten: tuple[Rewritten, ...]


def prepare(
    connection: Connection,
    storage: Storage,
    queue: QueueInfo,
    load_policy: LoadPolicy,
    incoming: Incoming,
    shards: Collection[int],
) -> PreparedLoad:
    """Decide by the present state of the catalog, and write the needed segments."""
    queued = known = None
    if load_policy.policy is not None:
        snapshot = take_snapshot(connection, storage.uri, queue, shards, load_policy.policy)
        queued = read_queued(snapshot, queue, columns_read(queue, load_policy.policy))
    if len(load_policy.dedup):
        columns = incoming.columns(load_policy.dedup.names).cast(load_policy.dedup)
        known = dedup.known(connection, queue.id, key_bytes(columns), load_policy.window)
    plan = decide(queue, load_policy, incoming, queued, known)
    rewritten: list[Rewritten] = []
    if queued is not None and len(plan.result.overwritten):
        parts = plan_rewrite(connection, storage.uri, queue, queued, plan.result.overwritten)
        rewritten = rewrite(storage, parts)
    try:
        staged = incoming.stage(plan.kept, plan.overwritten_new)
    except BaseException:
        remove_staged(storage, (one.staged for one in rewritten))
        raise
    return PreparedLoad(
        plan=plan,
        queued=queued,
        known=known,
        read_set=ReadSet.of(queued, plan.result),
        staged=tuple(staged),
        rewritten=tuple(rewritten),
    )
