"""Pick: the messages that a selection lets through, as ids for a firing to take.

Looks, in one reading transaction, at one moment of the catalog's, and changes nothing. A firing
takes of what was picked what is still there. In a queue with groups it takes only from shards from
which nothing was fired since, for the next of a group may have become the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Connection

from queue_core.catalog import dialect, id_map, turns
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import ShardKey, fetch
from queue_core.catalog.tables import slices
from queue_core.ids import IdSet
from queue_core.model import Slice, State
from queue_core.plan import share
from queue_core.rows import Numbers
from queue_core.selection.acquire import by_horizon, by_place
from queue_core.selection.conditions import eligible_slices
from queue_core.selection.fifo_scan import ScanConditions, ShardScan
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.scan import ID, SliceScan
from queue_core.selection.selection import Own, Selection
from queue_core.selection.top_k import BYTES, TopK

#: Slices that are fetched at a time, from and to.
PAGE = (64, 4096)


def find_candidates(catalog: Catalog, wanted: FireRequest) -> Candidates | None:
    """The messages to take now; None when any will do. Raises `DamagedSegment`."""
    if wanted.selection is None:
        return None
    with catalog.read() as connection:
        picked = _CandidateSearch(connection, wanted, wanted.selection).picked()
        if not len(picked.ids) and wanted.selection.fallback:
            anything = wanted.selection.without_selector()
            picked = _CandidateSearch(connection, wanted, anything).picked()
    return picked


class _CandidateSearch:
    """One look at all shards."""

    def __init__(self, connection: Connection, wanted: FireRequest, selection: Selection) -> None:
        self._connection = connection
        self._wanted = wanted
        self._selection = selection
        # First of all: what is fired after this is noticed.
        self._backlog = turns.backlog(connection, wanted.queue_ids, wanted.magazine, wanted.shards)
        now = dialect.read_clock(connection)
        self._look = SliceScan(connection, selection.queues, selection.storage, now)

    def picked(self) -> Candidates:
        """What to take of all queues."""
        # Shards in which the same holds.
        families: dict[Own, list[ShardKey]] = {}
        for place in self._backlog:
            families.setdefault(self._selection.own[place[0]], []).append(place)
        limit, most = self._wanted.max_messages, self._wanted.max_bytes
        if most is not None:
            there = sum(
                any(self._backlog[p].waiting for p in places) for places in families.values()
            )
            most = max(most // max(there, 1), 1)
        found = [self._of(own, places, most) for own, places in families.items()]
        if limit is not None and len(found) > 1:
            # Each as much as the others, and of each what its order puts first.
            shares = share({at: len(ids) for at, ids in enumerate(found)}, limit, self._turn)
            found = [ids[: shares.get(at, 0)] for at, ids in enumerate(found)]
        ids = np.concatenate([_NONE, *found])
        grouped = {
            place: self._backlog[place].fired
            for own, places in families.items()
            for place in places
            if own.group is not None
        }
        ranked = [place for own in families if own.order for place in families[own]]
        found_ids = IdSet.of(id_map.logical(self._connection, ids))
        return Candidates(
            found_ids, grouped, frozenset(ranked) if most is not None else frozenset()
        )

    @property
    def _turn(self) -> int:
        """By what was fired before, each turn begins where the last one ended."""
        return sum(shard.fired for shard in self._backlog.values())

    def _of(self, own: Own, places: list[ShardKey], most: int | None) -> Numbers:
        limit = self._wanted.max_messages
        if own.order is None or (limit is None and most is None):
            return self._in_turn(own, places, limit)
        found = self._slices(own, places)
        total = sum(len(piece.rows) for pieces in found.values() for piece in pieces)
        asked = {place: self._asked(own, place) for place in places}
        ranking = TopK(
            self._look, own.order, total if limit is None else min(limit, total), asked, found
        )
        first = ranking.messages() if own.group is None else ranking.heads()
        ids: Numbers = first.column(ID).to_numpy()
        if most is not None:
            fitting = int((np.cumsum(first.column(BYTES).to_numpy()) <= most).sum())
            ids = ids[: max(fitting, 1)]
        return ids

    def _in_turn(self, own: Own, places: list[ShardKey], limit: int | None) -> Numbers:
        """The oldest of each shard, evenly as far as there are as many."""
        start = self._turn % max(len(places), 1)
        walks = [
            ShardScan(self._look, self._asked(own, place), self._pages(own, place))
            for place in (*places[start:], *places[:start])
        ]
        going, wanted, counts = list(walks), 0, 0
        while going and (limit is None or counts < limit):
            if limit is not None:
                wanted += max((limit - counts) // len(going), 1)
            for walk in going:
                walk.find(None if limit is None else wanted)
                counts = sum(min(w.count, wanted) for w in walks)
                if limit is not None and counts >= limit:
                    break
            going = [walk for walk in going if not walk.done]
        tables = [rows for walk in walks for rows in walk.found]
        if not tables:
            return _NONE
        ids: Numbers = pa.concat_tables(tables).column(ID).to_numpy()
        return ids

    def _asked(self, own: Own, place: ShardKey) -> ScanConditions:
        selector = self._selection.selector
        met = (own.condition,) if own.condition else ()
        wanted = (selector,) if selector else ()
        if own.group is None:
            return ScanConditions(eligible=met, wanted=wanted)
        horizon = self._wanted.horizon
        return ScanConditions(
            eligible=met,
            wanted=wanted,
            group=own.group,
            busy=self._busy(own.group, place),
            keep=own.order.columns if own.order else frozenset(),
            end=None if horizon is None else horizon.pointers.get(place, 0),
            since=None if horizon is None else horizon.at,
        )

    def _busy(self, group: str, place: ShardKey) -> pa.Array:
        """The groups of a shard of which something is in flight."""
        fired = fetch(self._connection, *_at(place), slices.c.state == int(State.FIRED))
        if not fired:
            return pa.array([], self._selection.queues[0].schema.field(group).type)
        rows = self._look.table([(piece, piece.rows) for piece in fired], {group})
        return pc.unique(rows.column(group))

    def _pages(self, own: Own, place: ShardKey) -> Iterator[Slice]:
        """The slices of a shard in which something may be taken, in order."""
        after, (size, most) = -1, PAGE
        while True:
            found = fetch(
                self._connection,
                *eligible_slices(self._connection, self._wanted_of(own)),
                *_at(place),
                slices.c.position > after,
                limit=size,
            )
            yield from self._within(own, place, found)
            if len(found) < size:
                return
            after, size = found[-1].position, min(size * 4, most)

    def _slices(self, own: Own, places: list[ShardKey]) -> dict[ShardKey, list[Slice]]:
        """All slices in which something may be taken."""
        found = by_place(
            fetch(self._connection, *eligible_slices(self._connection, self._wanted_of(own)))
        )
        return {place: list(self._within(own, place, found.get(place, []))) for place in places}

    def _within(self, own: Own, place: ShardKey, pieces: Sequence[Slice]) -> Iterator[Slice]:
        for piece, rows in by_horizon(
            [(piece, piece.rows) for piece in pieces], self._wanted_of(own), place
        ):
            yield piece if rows is piece.rows else replace(piece, rows=rows)

    def _wanted_of(self, own: Own) -> FireRequest:
        # What came later stands in the way of others of its group, and so has to be looked at.
        return self._wanted if own.group is None else replace(self._wanted, horizon=None)


_NONE: Numbers = np.empty(0, dtype=np.int64)


def _at(place: ShardKey) -> tuple[ColumnElement[bool], ...]:
    queue_id, magazine, shard = place
    return (
        slices.c.queue_id == queue_id,
        slices.c.magazine == magazine,
        slices.c.shard == shard,
    )
