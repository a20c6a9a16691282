"""Candidates: find the messages that a selection matches, for a firing to take.

The search reads one state of the catalog and changes nothing. The firing takes the candidates that
still wait. In a queue with groups, it takes messages only from shards without a firing since the
search: after a firing, the next message of a group may be the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.external_transactions import CallersCatalog
from queue_core.catalog.slices import id_map, shard_locks
from queue_core.catalog.slices.conditions import IN_FLIGHT, eligible, in_shard, next_in
from queue_core.catalog.slices.slices import ShardKey, fetch
from queue_core.selection.acquire import by_shard
from queue_core.selection.best_scan import PAGE, ByColumns, ByRank, find_first, first_of
from queue_core.selection.fifo_scan import STEP_ROWS, ScanConditions, ShardScan
from queue_core.selection.fired import Refusal, fitting
from queue_core.selection.known_groups import KnownGroups
from queue_core.selection.merging import merged
from queue_core.selection.quotas import bytes_of_queues, cut_by_horizon, shares_of_queues
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.scan import BYTES, ID, SliceScan, row_sizes
from queue_core.selection.selection import QueueRules, Selection
from queue_core.values.ids import IdSet
from queue_core.values.limits import MANY
from queue_core.values.model import Slice
from queue_core.values.plan import Taken, share
from queue_core.values.rows import Numbers

if TYPE_CHECKING:
    from queue_core.selector import Condition

#: A column of merged rows: the time of loading, in microseconds.
TIME = "#time"


def find_candidates(catalog: Catalog, request: FireRequest) -> Candidates | None:
    """Return the messages to take now; None if any may be taken. Raises `DamagedSegment`."""
    if request.selection is None:
        return None
    with catalog.read() as connection:
        candidates = _CandidateSearch(catalog, connection, request, request.selection).run()
        if not len(candidates.ids) and request.selection.fallback:
            anything = replace(request.selection, selector=None, fallback=False)
            candidates = _CandidateSearch(catalog, connection, request, anything).run()
    return candidates


class _Family(NamedTuple):
    """Shards of the same rules, and how much is wanted of them."""

    rules: QueueRules
    keys: list[ShardKey]
    limit: int | None
    max_bytes: int | None
    #: What the limits of values leave out.
    left_out: tuple[Condition, ...] = ()

    @property
    def queue_id(self) -> int:
        """The first of its queues."""
        return self.keys[0][0]

    @property
    def is_cut(self) -> bool:
        """Whether only some of its messages are wanted, so that their order decides which."""
        is_limited = self.limit is not None or self.max_bytes is not None
        return is_limited or bool(self.rules.limits)


class _CandidateSearch:
    """A search through the shards of a request, at one moment."""

    def __init__(
        self, catalog: Catalog, connection: Connection, request: FireRequest, selection: Selection
    ) -> None:
        #: Whether what it sees may be kept: a caller may roll back what its own transaction sees.
        self._is_lasting = not isinstance(catalog, CallersCatalog)
        self._connection = connection
        self._request = request
        self._selection = selection
        # Read first, so that any later firing is noticed.
        self._backlog = shard_locks.backlog(connection, *request.where)
        now = dialect.read_clock(connection)
        self._scan = SliceScan(connection, request.queues, request.storage, now)
        self._values: dict[int, pa.Table] = {}
        #: The seconds after which messages that limits of values leave out may be fired.
        self._waits: list[float] = []
        #: Whether a limit of bytes has left messages.
        self._is_full = False

    def run(self) -> Candidates:
        """Search all shards, those of the same rules together."""
        # A queue with limits of values is a family of its own. So are fair queues, and all queues
        # that share by weight.
        of_family: dict[tuple[QueueRules, int | None], list[ShardKey]] = {}
        terms = self._request.terms
        for key in self._backlog:
            rules = self._selection.rules[key[0]]
            alone = rules.limits or key[0] in terms.fair or terms.weights
            of_family.setdefault((rules, key[0] if alone else None), []).append(key)
        limit, max_bytes = self._request.max_messages, self._request.max_bytes
        limited = {queue_id for queue_id, _ in terms.limits}
        families = []
        for (rules, _), keys in of_family.items():
            # A limit of a queue will cut the candidates, by their order: find them in order.
            is_cut = limit is None and not rules.limits and limited & {key[0] for key in keys}
            families.append(_Family(rules, keys, MANY if is_cut else limit, max_bytes))
        if terms.weights:
            found = self._by_weight(families, limit, max_bytes)
        else:
            if max_bytes is not None:
                waiting = sum(any(self._backlog[k].waiting for k in f.keys) for f in families)
                max_bytes = max(max_bytes // max(waiting, 1), 1)
            found = [self._find(family._replace(max_bytes=max_bytes)) for family in families]
        if limit is not None and len(found) > 1 and not terms.weights:
            # Evenly from each family: the first ones by its order.
            shares = share({at: len(ids) for at, ids in enumerate(found)}, limit, self._turn)
            found = [ids[: shares.get(at, 0)] for at, ids in enumerate(found)]
        ids = id_map.logical(self._connection, np.concatenate([_NO_IDS, *found]))
        grouped = [key for family in families if family.rules.group for key in family.keys]
        ranked = [key for family in families if self._is_ranked(family) for key in family.keys]
        return Candidates(
            ids=IdSet.of(ids),
            fired={key: self._backlog[key].fired for key in grouped},
            ranked=frozenset(ranked),
            order=ids,
            values=self._values,
            full=self._is_full,
            complete=(limit is None or len(ids) < limit)
            and not (self._waits or self._is_full or self._selection.fallback),
            refused=Refusal.by_limits(self._waits) if self._waits and not len(ids) else None,
        )

    def _is_ranked(self, family: _Family) -> bool:
        """Return whether candidates are cut to a limit of bytes by their order."""
        rules = family.rules
        return bool(rules.order or rules.merged or family.queue_id in self._request.terms.fair)

    @property
    def _turn(self) -> int:
        """Return the number of fired messages: each firing begins where the last one ended."""
        return sum(shard.fired for shard in self._backlog.values())

    def _by_weight(
        self, families: Sequence[_Family], limit: int | None, max_bytes: int | None
    ) -> list[Numbers]:
        """Search each queue for its part of the limits, and for more if others have too few."""
        of_queue = {family.queue_id: family for family in families}
        left = {
            id: sum(self._backlog[key].waiting for key in family.keys)
            for id, family in of_queue.items()
        }
        if not any(left.values()):
            # The counters are only hints.
            left = dict.fromkeys(left, limit or 1)
        waiting = [id for id, count in left.items() if count]
        sizes = {} if max_bytes is None else bytes_of_queues(self._request, waiting, max_bytes)
        wanted = {id: of_queue[id]._replace(max_bytes=sizes.get(id)) for id in of_queue}
        if limit is None:
            return [self._find(wanted[id]) for id in waiting]
        found: dict[int, Numbers] = {}
        while True:
            parts = shares_of_queues(self._request, left, limit)
            lacking = [id for id in parts if parts[id] > len(found.get(id, _NO_IDS))]
            if not lacking:
                return [found[id][:part] for id, part in parts.items() if part]
            for id in lacking:
                # The second search of a queue is its last.
                most = limit if id in found else parts[id]
                found[id] = self._find(wanted[id]._replace(limit=most))
                if len(found[id]) < most:
                    left[id] = len(found[id])

    def _find(self, family: _Family) -> Numbers:
        """Return the ids of the candidates of a family."""
        return self._limited(family) if family.rules.limits else self._search(family)

    def _limited(self, family: _Family) -> Numbers:
        """Return the ids of candidates that the limits of values allow."""
        # Not at the top: few queues have such limits.
        from queue_core.selection.by_value import ValueRooms, find_with_room

        rooms = ValueRooms(self._scan, family.queue_id, family.rules.limits)
        waits = rooms.waits

        def search(most: int | None, left_out: tuple[Condition, ...]) -> Numbers:
            return self._search(family._replace(limit=most, left_out=left_out))

        found = find_with_room(rooms, search, self._request, family.limit)
        anything = family._replace(limit=1, max_bytes=None)
        if waits and (found.num_rows or len(self._search(anything))):
            # Some messages wait that the limits refuse.
            self._waits += waits
        # Each of several searches may have filled the limit of bytes.
        ids = self._fitting(found, family.max_bytes if self._is_ranked(family) else None)
        self._values[family.queue_id] = found.slice(0, len(ids))
        return ids

    def _search(self, family: _Family) -> Numbers:
        """Return the ids of the candidates of some shards."""
        rules, keys, limit, max_bytes, _ = family
        if family.is_cut and family.queue_id in self._request.terms.fair:
            of_queue = replace(self._request_of(rules), queue_ids=(family.queue_id,))
            pages = ByRank.pages(self._connection, of_queue)
            meeting = self._conditions(family, keys[0]).all
            best = find_first(self._scan, meeting, ByRank(), pages, limit or MANY, max_bytes)
            return self._fitting(best, max_bytes)
        if family.is_cut and rules.merged:
            return self._merged(family)
        if rules.order is None or not family.is_cut:
            return self._oldest(family)
        found = self._slices(rules, keys)
        by_columns = ByColumns(self._scan, rules.order, found)
        if rules.group is None:
            # The conditions of all shards are the same.
            meeting, page = self._conditions(family, keys[0]).all, by_columns.page()
            best = find_first(self._scan, meeting, by_columns, [page], limit or MANY, max_bytes)
            return self._fitting(best, max_bytes)
        heads: list[pa.Table] = []
        for key, pieces in found.items():
            # Heads are known only after a scan of the whole shard.
            scan = ShardScan(self._scan, self._conditions(family, key), pieces, by_columns.keyed)
            scan.find(None)
            heads += scan.found
        return self._fitting(first_of(heads, by_columns, limit or MANY), max_bytes)

    def _merged(self, family: _Family) -> Numbers:
        """Return the oldest matches of all shards, by the time of loading."""
        limit, found = family.limit, []
        # One more shows where the last one ends.
        first = PAGE[0] if limit is None else limit + 1
        for key in family.keys:
            pages = self._pages(family.rules, key, first=first)
            scan = ShardScan(self._scan, self._conditions(family, key), pages, _timed)
            # All matches may be in this shard.
            _find(scan, limit, family.max_bytes)
            if scan.count:
                found.append(pa.concat_tables(scan.found))
        if not found:
            return _NO_IDS
        rows = pa.concat_tables(found)
        order = merged(
            rows.column(TIME).to_numpy(),
            id_map.logical(self._connection, rows.column(ID).to_numpy()),
            [of_shard.num_rows for of_shard in found],
        )
        return self._fitting(rows.take(pa.array(order[:limit])), family.max_bytes)

    def _fitting(self, rows: pa.Table, max_bytes: int | None) -> Numbers:
        """Return the ids of the first messages within a limit of bytes, but at least one."""
        ids: Numbers = rows.column(ID).to_numpy()
        if max_bytes is None:
            return ids
        ids, is_cut = fitting(ids, rows.column(BYTES).to_numpy(), max_bytes)
        self._is_full |= is_cut
        return ids

    def _oldest(self, family: _Family) -> Numbers:
        """Return the oldest matches of each shard, as evenly as possible."""
        keys, limit = family.keys, family.limit
        start = self._turn % max(len(keys), 1)
        scans = [
            ShardScan(
                self._scan,
                self._conditions(family, key),
                self._pages(family.rules, key),
                known=self._known_groups(family.rules, key),
            )
            for key in (*keys[start:], *keys[:start])
        ]
        unfinished, per_shard, count = list(scans), 0, 0
        while unfinished and (limit is None or count < limit):
            if limit is not None:
                per_shard += max((limit - count) // len(unfinished), 1)
            for scan in unfinished:
                scan.find(None if limit is None else per_shard)
                count = sum(min(one.count, per_shard) for one in scans)
                if limit is not None and count >= limit:
                    break
            unfinished = [scan for scan in unfinished if not scan.done]
        ids: list[Numbers] = [t.column(ID).to_numpy() for scan in scans for t in scan.found]
        return np.concatenate([_NO_IDS, *ids])

    def _conditions(self, family: _Family, key: ShardKey) -> ScanConditions:
        rules = family.rules
        eligible = (rules.condition,) if rules.condition else ()
        matching = self._selection.conditions + family.left_out
        by_time = frozenset({"_loaded_at"} if rules.merged else ())
        if rules.group is None:
            return ScanConditions(eligible=eligible, matching=matching, keep=by_time)
        horizon = self._request.horizon
        return ScanConditions(
            eligible=eligible,
            matching=matching,
            group=rules.group,
            in_flight=self._groups_in_flight(rules.group, key),
            keep=rules.order.columns if rules.order else by_time,
            end=None if horizon is None else horizon.pointers.get(key, 0),
            since=None if horizon is None else horizon.at,
            now=0 if horizon is None else dialect.read_clock(self._connection),
            lost_among=self._request.lost_among,
        )

    def _known_groups(self, rules: QueueRules, key: ShardKey) -> KnownGroups | None:
        """Return the known groups of a shard; None if the queue has none, or a part is scanned."""
        if rules.group is None or self._request.within is not None:
            return None
        shard = (self._scan.created[key[0]], key, rules.group, self._request_of(rules).rules)
        behind = partial(self._pages, rules, key)
        released = self._backlog[key].released
        return KnownGroups(shard, released, behind, keeps=self._is_lasting)

    def _groups_in_flight(self, group: str, key: ShardKey) -> pa.Array:
        """Return the groups of a shard that have a message in flight."""
        fired = fetch(self._connection, *in_shard(key), *IN_FLIGHT)
        if not fired:
            return pa.array([], self._scan.schema.field(group).type)
        rows = self._scan.table([(piece, piece.rows) for piece in fired], {group})
        return pc.unique(rows.column(group))

    def _pages(
        self, rules: QueueRules, key: ShardKey, after: int = -1, first: int = PAGE[0]
    ) -> Iterator[Slice]:
        """
        Yield the slices of a shard *after* a place that may hold candidates, in order, by pages.

        The page after the *first* one has four times as many slices, and so on.
        """
        request = self._request_of(rules)
        size, largest = min(first, PAGE[0]), PAGE[1]
        while True:
            where, given = eligible(request)
            next_ones, of_shard = next_in(key, after)
            found = fetch(self._connection, *where, *next_ones, given=given | of_shard, limit=size)
            yield from cut_by_horizon(found, request)
            if len(found) < size:
                return
            after, size = found[-1].position, min(size * 4, largest)

    def _slices(self, rules: QueueRules, keys: list[ShardKey]) -> dict[ShardKey, list[Slice]]:
        """Return all slices of some shards that may hold candidates."""
        request = self._request_of(rules)
        where, given = eligible(request)
        pieces = fetch(self._connection, *where, given=given)
        found = by_shard(cut_by_horizon(pieces, request))
        return {key: found.get(key, []) for key in keys}

    def _request_of(self, rules: QueueRules) -> FireRequest:
        if rules.group is None:
            return self._request
        # Messages that are not wanted, as after the horizon or suspects, may be heads of groups,
        # which hold back the wanted ones.
        return replace(self._request, lost_among=None, horizon=None)


_NO_IDS: Numbers = np.empty(0, dtype=np.int64)


def _timed(rows: pa.Table, taken: Sequence[Taken]) -> pa.Table:
    """Return the ids, the times of loading and the estimated bytes of rows of some slices."""
    times = rows.column("_loaded_at").cast(pa.int64())
    return pa.table({ID: rows.column(ID), TIME: times, BYTES: row_sizes(rows, taken)})


def _find(scan: ShardScan, limit: int | None, max_bytes: int | None) -> None:
    """Find as many messages of a shard as may be needed."""
    if max_bytes is None:
        scan.find(limit)
        return
    bytes, known = 0.0, 0
    while not scan.done and bytes <= max_bytes and (limit is None or scan.count < limit):
        wanted = max(2 * scan.count, STEP_ROWS[0])
        scan.find(wanted if limit is None else min(wanted, limit))
        bytes += sum(pc.sum(part.column(BYTES)).as_py() or 0.0 for part in scan.found[known:])
        known = len(scan.found)
