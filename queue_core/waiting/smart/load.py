"""Smart load: a policy compares new and queued messages of a key, and loads or leaves out.

Changes: the changes of a load. In the same transaction, queued messages are deleted, or get other
values; they are then rewritten under their ids and at their places. Guard: the load is decided
outside of the transaction, from one snapshot of the catalog. The transaction validates the
decision: since the snapshot, no message was loaded into the shards, none of the load's keys has
become known, and the queued messages on which it depends are unchanged. Otherwise, the load is
decided again; after some tries, within the transaction, with the shards locked. Messages that come
back meanwhile count as later messages. Crash before the commit: files that no slice names, which
vacuum removes. Crash after it: as after a load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.damage import beside_settlements
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import named_locks
from queue_core.catalog.records import dedup
from queue_core.catalog.records.publications import claim
from queue_core.catalog.slices import id_map, segments, shard_locks
from queue_core.catalog.slices.changes import Changes
from queue_core.errors import Conflict, IgnisError, PublicationRefused
from queue_core.policies import binding
from queue_core.policies.inputs import BoundPolicy, PolicyResult
from queue_core.segments.key_bytes import key_bytes
from queue_core.segments.stager import remove_refused, remove_staged
from queue_core.segments.storage import Storage
from queue_core.values.ids import IdSet, ids_from
from queue_core.values.model import Magazine, QueueInfo, Slice, Staged, State
from queue_core.values.rows import Rows
from queue_core.waiting.bounded_load import load_bounded
from queue_core.waiting.smart.decide import columns_read, decide, policy_of
from queue_core.waiting.smart.incoming import Incoming, IncomingRows, IncomingSegments, Stage
from queue_core.waiting.smart.rewrite import Rewritten, rewrite
from queue_core.waiting.smart.snapshot import QueuedMessages, take_snapshot
from queue_core.waiting.smart.validate import StaleSnapshot, rows_read, validate

if TYPE_CHECKING:
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check

Result = TypeVar("Result")
#: Loads within a transaction; the waiter and the overflow are as in `load_bounded`.
Decided: TypeAlias = Callable[[Connection, int | None, str | None], list[int]]

#: How often a load is decided before the shards are locked.
TRIES = 4


@dataclass(frozen=True, kw_only=True)
class PreparedLoad:
    """A decided load, all of whose segments are durable."""

    #: What the policy and the de-duplication have decided.
    result: PolicyResult
    #: The number of messages of each shard that are left out.
    ignored: Mapping[int, int]
    #: The queued messages that the policy saw; None without a policy.
    queued: QueuedMessages | None
    #: What was known of the messages; None without de-duplication.
    known: dedup.KnownKeys | None
    #: The rows of the queued messages on which the result depends, by state.
    rows_read: dict[State, IdSet]
    #: The segments of the new messages.
    staged: tuple[Staged, ...]
    #: The segments of queued messages with new values.
    rewritten: tuple[Rewritten, ...]


class SmartLoad:
    """One load with a policy or de-duplication, repeated until its decision holds."""

    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        queue: QueueInfo,
        policy: BoundPolicy | None,
        incoming: Incoming,
    ) -> None:
        self._catalog = catalog
        self._storage = storage
        self._queue = queue
        self._policy = policy
        self.incoming = incoming
        self._shards = sorted(set(incoming.shards.tolist()))
        self._prepared: PreparedLoad | None = None

    @property
    def prepared(self) -> PreparedLoad:
        """The last decision."""
        assert self._prepared is not None, "`repeat` or `load_within` decides"
        return self._prepared

    def load_within(
        self, connection: Connection, waiter: int | None = None, overflow: str | None = None
    ) -> list[int]:
        """
        Decide and load within a transaction of the caller, with the shards locked.

        Returns the id of the first message of each segment. Raises `CapacityExceeded`.
        """
        if self._queue.settings.is_bounded or self._queue.settings.dedup:
            # A bound or de-duplication concerns the whole queue. Two such transactions that had
            # locked their shards first would wait for each other.
            named_locks.lock_room(connection, self._queue.id)
        return self._load_exclusively(connection, waiter, overflow)

    def repeat(self, commit: Callable[[Decided], Result]) -> Result:
        """
        Call *commit* until its transaction, which calls what it is given, finds the decision true.

        Returns its result. Raises what it raises, and `DamagedSegment`.
        """
        for _ in range(TRIES):
            if self._prepared is None:
                self.prepare()
            try:
                return commit(self._load)
            except (StaleSnapshot, PublicationRefused) as error:
                if isinstance(error, PublicationRefused) and self.incoming.brought:
                    raise
                # It may also have waited for longer than vacuum leaves its files alone.
                self.discard()
        return commit(self._load_exclusively)

    def _load(self, connection: Connection, waiter: int | None, overflow: str | None) -> list[int]:
        """Validate the decision and carry it out; raises `StaleSnapshot` before any change."""
        queue, prepared = self._queue, self.prepared
        locked = validate(
            connection, queue, self._shards, prepared.queued, prepared.rows_read, prepared.known
        )
        if not prepared.staged:
            # Nothing is loaded, so nothing else would notice that the settings have changed.
            queues.hold_settings(connection, queue)
        claim(connection, self._storage, [one.staged for one in prepared.rewritten])
        changes = Changes([queue])
        apply_result(connection, queue, prepared, locked, changes)
        for shard, count in prepared.ignored.items():
            changes.count_at((queue.id, int(Magazine.MAIN), shard), ignored=count)
        changes.apply(connection)
        gone, new = len(prepared.result.deleted), np.count_nonzero(prepared.result.kept)
        if queue.settings.is_bounded and waiter is None and gone >= new:
            # It frees at least the room that it takes, so it need not wait behind others in line.
            waiter = 0
        ids = load_bounded(connection, self._storage, queue, prepared.staged, waiter, overflow)
        segments.discard_unpublished(connection, _others(self.incoming.brought, prepared.staged))
        return ids

    def _load_exclusively(
        self, connection: Connection, waiter: int | None, overflow: str | None
    ) -> list[int]:
        """Decide and load while no other process loads into the shards or fires from them."""
        queue, shards = self._queue, self._shards
        shard_locks.lock(connection, [queue.id], shard_numbers=shards)
        queues.hold(connection, queue, alone=bool(queue.settings.dedup))
        # Before any change: a policy that was set meanwhile decides instead.
        queues.hold_settings(connection, queue)
        shard_locks.load_pointers(connection, queue.id, shards, lock=True)
        for _ in range(TRIES):
            self.discard()
            # Messages in flight can still be settled.
            beside_settlements(partial(self.prepare, connection))
            with suppress(StaleSnapshot):
                return self._load(connection, waiter, overflow)
        raise Conflict(
            f"queue {queue.name!r}: messages in flight were settled faster than a policy could "
            "decide about them; load again"
        )

    def prepare(self, connection: Connection | None = None) -> None:
        """
        Decide by the present state of the catalog, and write the needed segments.

        It reads this state within a transaction, or at one moment.
        """
        if connection is None:
            with self._catalog.read() as connection:
                return self.prepare(connection)
        storage, queue, policy = self._storage, self._queue, self._policy
        queued = known = None
        if policy is not None:
            if queues.still_there(connection, queue).schema_version != queue.schema_version:
                # Queued messages may differ in a column that is new.
                raise queues.SettingsChanged
            wanted = columns_read(queue, policy)
            queued = take_snapshot(connection, storage.uri, queue, self._shards, policy, wanted)
        if queue.settings.dedup:
            key = binding.dedup_schema(queue.settings.dedup, queue.schema)
            columns = self.incoming.columns(key.names).cast(key)
            window = queue.settings.dedup_window
            known = dedup.known(connection, queue.id, key_bytes(columns), window)
        result = decide(queue, policy, self.incoming, queued, known)
        ignored = np.bincount(self.incoming.shards[~result.kept])
        rewritten: list[Rewritten] = []
        if queued is not None and len(result.overwritten):
            rewritten = rewrite(connection, storage, queue, queued, result.overwritten)
        try:
            staged = self.incoming.stage(result.kept, result.overwritten_new)
        except BaseException:
            remove_staged(storage, (one.staged for one in rewritten))
            raise
        self._prepared = PreparedLoad(
            result=result,
            ignored={int(shard): int(ignored[shard]) for shard in np.flatnonzero(ignored)},
            queued=queued,
            known=known,
            rows_read=rows_read(queued, result),
            staged=tuple(staged),
            rewritten=tuple(rewritten),
        )

    def refuse(self, error: IgnisError) -> None:
        """Remove all files, unless the load may be committed."""
        prepared = self._prepared
        rewritten = () if prepared is None else [one.staged for one in prepared.rewritten]
        staged = () if prepared is None else prepared.staged
        remove_refused(self._storage, (*rewritten, *staged, *self.incoming.brought), error)

    def discard(self) -> None:
        """Remove the files of a decision that does not hold."""
        if self._prepared is not None:
            remove_staged(self._storage, _others(self._prepared.staged, self.incoming.brought))
            remove_staged(self._storage, (one.staged for one in self._prepared.rewritten))
            self._prepared = None


def ids_of_rows(load: SmartLoad, first_ids: list[int]) -> pa.Array:
    """Return the id of each row of a table that is loaded; null for rows that are left out."""
    prepared, rows = load.prepared, load.incoming
    assert isinstance(rows, IncomingRows), "it loads the rows of a table"
    ids = np.full(len(rows), -1, np.int64)
    if prepared.staged:
        ids[prepared.result.kept] = ids_from(first_ids, prepared.staged)[rows.order]
    return pa.array(ids, mask=ids < 0)


def _others(these: Sequence[Staged], those: Sequence[Staged]) -> list[Staged]:
    """Return the first segments without those that have the file of one of the second."""
    files = {segment.location for segment in those}
    return [segment for segment in these if segment.location not in files]


def of_rows(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    rows: pa.Table,
    stage: Stage,
    policy: Policy | Check | str | None = None,
) -> SmartLoad | None:
    """
    Return the load of the rows of a table, which *stage* writes; *policy* is as in `policy_of`.

    Returns None if the queue has neither policy nor de-duplication.
    """
    bound = policy_of(queue, policy)
    if bound is None and not queue.settings.dedup:
        return None
    return SmartLoad(catalog, storage, queue, bound, IncomingRows(queue, rows, stage))


def of_staged(
    catalog: Catalog, storage: Storage, queue: QueueInfo, staged: Sequence[Staged]
) -> SmartLoad | None:
    """Do the same for segments that the tasks of a sink have staged; each run has its shard."""
    policy = policy_of(queue)
    if policy is None and not queue.settings.dedup:
        return None
    schemas = {}
    if any(segment.schema_version != queue.schema_version for segment in staged):
        with catalog.read() as connection:
            older = queues.schemas_of(connection, queue.id)
        schemas = {(queue.name, version): data for version, data in older.items()}
    incoming = IncomingSegments(queue, storage, staged, schemas)
    return SmartLoad(catalog, storage, queue, policy, incoming)


def apply_result(
    connection: Connection,
    queue: QueueInfo,
    prepared: PreparedLoad,
    locked: Sequence[Slice],
    changes: Changes,
) -> None:
    """Delete and overwrite queued messages; *locked* are the slices from `validate`."""
    if prepared.queued is None:
        return
    waiting = [piece for piece in locked if piece.state is State.LOADED]
    deleted = prepared.queued.rows_of(prepared.result.deleted)
    _move_to_new_segments(connection, queue, prepared.rewritten, waiting, deleted, changes)
    for piece in locked:
        changes.remove(piece, piece.rows & deleted.rows(piece.segment_id), "replaced")


def _move_to_new_segments(
    connection: Connection,
    queue: QueueInfo,
    rewritten: Sequence[Rewritten],
    waiting: Sequence[Slice],
    deleted: IdSet,
    changes: Changes,
) -> None:
    """Let slices name messages in their new segments, if the messages still wait and stay."""
    for one in rewritten:
        segment_id, _ = segments.publish(connection, queue.id, one.staged)
        ids, rows = [], []
        for part in one.parts:
            (source,) = part.group.pieces
            old = source.rows.numbers()
            for piece in waiting:
                if piece.segment_id != source.segment_id:
                    continue
                # A message that is deleted may be between two that are rewritten.
                common = (piece.rows & source.rows) - deleted.rows(piece.segment_id)
                if not common:
                    continue
                at = np.flatnonzero(np.isin(old, common.numbers(), assume_unique=True))
                ids.append(part.ids[at])
                rows.append(part.rows[at])
                new = Rows.of_numbers(part.rows[at])
                moved = replace(
                    piece.narrowed(common),
                    segment_id=segment_id,
                    rows=new,
                    bytes=part.piece.bytes_of(new),
                    stats=part.piece.stats,
                )
                changes.cut(piece, common)
                changes.put(moved, new)
        id_map.record(connection, queue.id, segment_id, np.concatenate(ids), np.concatenate(rows))
