"""Smart load: new messages meet the queued ones of their key, and are loaded, or not.

Changes: as a load does; and queued messages are deleted, or take over values, for which they are
written anew under their ids and at their places. All in one transaction. Guard: what becomes of
them is decided outside of it, from one state of the catalog. Within it the turns of the shards are
taken, and it counts only if nothing was loaded there since, nobody has added keys to known ones,
and the queued messages on which it rests are as they were; else it is decided again, after some
tries with the shards kept from others. What only comes back meanwhile counts as having come later.
Crash before the commit: files that no slice names, for vacuum. Crash after it: as after a load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core import faults
from queue_core.blocking.admission import admit
from queue_core.capacity.bounds import OnFull
from queue_core.catalog import dedup, dialect, queues, segments, turns
from queue_core.catalog.database import Catalog
from queue_core.catalog.publications import claim, is_new_batch
from queue_core.catalog.slices import Changes
from queue_core.errors import Conflict
from queue_core.ids import ids_from
from queue_core.model import Magazine, QueueInfo, Staged
from queue_core.segments.storage import Storage
from queue_core.smart.decide import LoadPlan, LoadPolicy, decide
from queue_core.smart.incoming import Incoming, IncomingRows, IncomingSegments, remove
from queue_core.smart.rewrite import Rewriting, Rewritten, plan, rewrite
from queue_core.smart.snapshot import Queued, read_queued, take_snapshot
from queue_core.smart.validate import StaleSnapshot, apply_result, validate
from queue_core.verbs.load import load

#: How often a load is decided without keeping others out.
TRIES = 4

#: A streaming query's id, and the number of its batch.
Batch = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A load that is decided, and durable as far as it is written."""

    judgement: LoadPlan
    queued: Queued | None
    #: The newest known key.
    known: int
    staged: tuple[Staged, ...]
    written: tuple[Rewritten, ...]


class SmartLoad:
    """One load by a rule, tried until it holds."""

    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        queue: QueueInfo,
        rule: LoadPolicy,
        incoming: Incoming,
    ) -> None:
        self._catalog = catalog
        self._storage = storage
        self._queue = queue
        self._rule = rule
        self._incoming = incoming
        self._shards = sorted(set(incoming.shards.tolist()))
        self._prepared: Prepared | None = None

    @property
    def prepared(self) -> Prepared:
        """What was decided last."""
        assert self._prepared is not None, "it is decided"
        return self._prepared

    def run(self, when_full: OnFull, batch: Batch | None = None) -> list[int] | None:
        """
        Load; the ids of the first message of each segment that was staged last.

        None where the *batch* was loaded before. Raises as `queue_core.verbs.load.publish` does,
        and `DamagedSegment`.
        """
        catalog, uri, queue = self._catalog, self._storage.uri, self._queue

        def attempt(waiter: int | None) -> list[int] | None:
            return self._attempt(batch, waiter, when_full.overflow)

        with catalog.read() as connection:
            self._prepared = self._prepare(connection)
        # When this fails nobody may know whether it was committed: what is written stays.
        ids = admit(catalog, uri, queue, self._prepared.staged, attempt, when_full)
        if ids is None:
            self._discard()
        faults.point("load.committed")
        return ids

    def _attempt(
        self, batch: Batch | None, waiter: int | None, overflow: str | None
    ) -> list[int] | None:
        def work(connection: Connection, *, alone: bool) -> list[int] | None:
            if self._queue.settings.is_bounded:
                dialect.hold_room(connection, self._queue.id)
            if batch is not None and not is_new_batch(connection, self._queue.id, *batch):
                segments.discard_unpublished(connection, self._incoming.unused(()))
                return None
            act = self._carry_out_alone if alone else self._carry_out
            ids = act(connection, waiter, overflow)
            faults.point("load.before_commit")
            return ids

        for _ in range(TRIES):
            try:
                return self._catalog.write(partial(work, alone=False))
            except StaleSnapshot:
                self._discard()
                with self._catalog.read() as connection:
                    self._prepared = self._prepare(connection)
        return self._catalog.write(partial(work, alone=True))

    def _prepare(self, connection: Connection) -> Prepared:
        """Decide by what is there now, and write what has to be written."""
        queue, rule, uri = self._queue, self._rule, self._storage.uri
        queued = known = None
        if rule.evaluation is not None and queue.key is not None:
            sight = take_snapshot(connection, uri, queue, self._shards, rule.evaluation)
            queued = read_queued(sight, queue, list(dict.fromkeys([queue.key, *rule.columns])))
        if len(rule.dedup):
            known = dedup.known(connection, queue.id, rule.dedup, rule.window)
        judgement = decide(queue, rule, self._incoming, queued, known)
        rewriting = None
        if queued is not None and len(judgement.verdict.overwritten):
            rewriting = plan(connection, uri, queue, queued, judgement.verdict.overwritten)
        return self._written(judgement, queued, known.last if known else 0, rewriting)

    def _written(
        self,
        judgement: LoadPlan,
        queued: Queued | None,
        known: int,
        rewriting: Rewriting | None,
    ) -> Prepared:
        written = [] if rewriting is None else rewrite(self._storage, self._queue, rewriting)
        try:
            staged = self._incoming.stage(judgement.kept, judgement.overwritten_new)
        except BaseException:
            remove(self._storage, [one.staged for one in written])
            raise
        return Prepared(
            judgement=judgement,
            queued=queued,
            known=known,
            staged=tuple(staged),
            written=tuple(written),
        )

    def _discard(self) -> None:
        """Remove what was written for nothing, as far as that is possible."""
        if self._prepared is not None:
            self._incoming.discard(self._prepared.staged)
            remove(self._storage, [one.staged for one in self._prepared.written])
            self._prepared = None

    def _carry_out_alone(
        self, connection: Connection, waiter: int | None, overflow: str | None
    ) -> list[int]:
        """Decide and act while others neither load into the shards nor fire from them."""
        queue = self._queue
        self._take_turns(connection)
        queues.hold(connection, queue, alone=bool(self._rule.dedup))
        turns.lock_load_pointers(connection, [queue.id], shard_numbers=self._shards)
        for _ in range(TRIES):
            self._discard()
            self._prepared = self._prepare(connection)
            try:
                return self._carry_out(connection, waiter, overflow)
            except StaleSnapshot:
                # What is in flight may be settled all the same.
                continue
        raise Conflict(
            f"queue {queue.name!r}: what is in flight was settled faster than it could be decided "
            "upon; load again"
        )

    def _carry_out(
        self, connection: Connection, waiter: int | None, overflow: str | None
    ) -> list[int]:
        """What was decided; raises `StaleSnapshot` before anything is changed."""
        queue, prepared = self._queue, self.prepared
        judgement = prepared.judgement
        verdict, there = judgement.verdict, []
        if prepared.queued is not None and len(verdict.witnesses):
            self._take_turns(connection)
            there = validate(connection, queue, prepared.queued, verdict)
        queues.hold(connection, queue, alone=bool(self._rule.dedup))
        self._check(connection, prepared)
        claim(connection, self._storage, [one.staged for one in prepared.written])
        changes = Changes()
        if prepared.queued is not None:
            written = prepared.written
            apply_result(connection, queue, prepared.queued, verdict, written, there, changes)
        for shard, count in judgement.ignored.items():
            changes.count_at((queue.id, int(Magazine.MAIN), shard), ignored=count)
        changes.apply(connection)
        ids = load(connection, self._storage, queue, prepared.staged, waiter, overflow)
        dedup.add(connection, queue.id, judgement.keys, self._rule.window)
        segments.discard_unpublished(connection, self._incoming.unused(prepared.staged))
        return ids

    def _take_turns(self, connection: Connection) -> None:
        """Keep others from firing there; they would pass over what is locked."""
        turns.lock(connection, [self._queue.id], shard_numbers=self._shards)

    def _check(self, connection: Connection, prepared: Prepared) -> None:
        """Nothing was loaded into the shards since, nor a key added."""
        queue, queued = self._queue, prepared.queued
        if queued is not None:
            pointers = turns.lock_load_pointers(connection, [queue.id], shard_numbers=self._shards)
            if pointers != queued.pointers:
                raise StaleSnapshot
        if self._rule.dedup and dedup.last_row(connection, queue.id) != prepared.known:
            raise StaleSnapshot


def load_rows(load: SmartLoad, rows: IncomingRows, when_full: OnFull) -> pa.Array:
    """Load the rows of a table; the id of each, null for what is left out."""
    firsts = load.run(when_full)
    assert firsts is not None, "a load without a batch was not there before"
    prepared = load.prepared
    ids = np.full(len(rows), -1, np.int64)
    if prepared.staged:
        ids[prepared.judgement.kept] = ids_from(firsts, prepared.staged)[rows.order]
    return pa.array(ids, mask=ids < 0)


def load_staged(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    rule: LoadPolicy,
    staged: Sequence[Staged],
    when_full: OnFull,
    batch: Batch | None = None,
) -> bool:
    """
    Load what the tasks of a sink have staged, each run of which has a shard.

    A *batch* that was loaded before is not loaded again; tells whether it was now.
    """
    schemas = {}
    if any(segment.schema_version != queue.schema_version for segment in staged):
        with catalog.read() as connection:
            older = queues.schemas_of(connection, queue.id)
        schemas = {(queue.name, version): data for version, data in older.items()}
    incoming = IncomingSegments(queue, storage, staged, schemas)
    return SmartLoad(catalog, storage, queue, rule, incoming).run(when_full, batch) is not None
