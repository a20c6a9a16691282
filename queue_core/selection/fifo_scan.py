"""FIFO scan: find the oldest matching messages of a shard, without reading the whole backlog.

Slices come page by page. A slice whose statistics decide is not opened. From the others, the scan
reads as many rows as are likely to hold enough matches. In a queue with groups, it finds only
heads: a head is the oldest eligible message of a group that has none in flight. The consumer's
condition applies to heads afterwards; otherwise, a match would overtake older messages of its
group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.selection.scan import (
    ID,
    PLACE,
    SLICE,
    Mask,
    SliceScan,
    columns_of,
    in_order,
    is_lasting,
    mask,
)
from queue_core.values.model import Slice
from queue_core.values.plan import Taken, interleaved, messages_in
from queue_core.values.rows import EMPTY

if TYPE_CHECKING:
    from queue_core.selection.known_groups import KnownGroups
    from queue_core.selector import Condition

#: The least and the most rows that one step reads, so that few are read for nothing.
STEP_ROWS = (1 << 14, 1 << 18)
#: The most slices of the first step: each costs as much as many rows.
STEP_SLICES = 16
#: The growth of a step while no match is found, and of the slices of each step.
GROWTH = 4
#: The safety factor on the rows that the matches so far suggest.
MARGIN = 1.25

#: Makes a table of found rows from rows of some slices, and those slices.
Projection: TypeAlias = Callable[[pa.Table, Sequence[Taken]], pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConditions:
    """The conditions on messages of a shard."""

    #: Conditions of the queue, which make a message eligible.
    eligible: tuple[Condition, ...]
    #: Conditions of the consumer.
    matching: tuple[Condition, ...]
    #: The group column, and the groups that have a message in flight.
    group: str | None = None
    in_flight: pa.Array | None = None
    #: Columns of found messages that a projection uses.
    keep: frozenset[str] = frozenset()
    #: With groups: only messages at places before *end*, and not fired between *since* and *now*.
    end: int | None = None
    since: int | None = None
    now: int = 0
    #: With groups: only messages that were lost among so many.
    lost_among: int | None = None

    @property
    def all(self) -> tuple[Condition, ...]:
        """All conditions."""
        return (*self.eligible, *self.matching)


class ShardScan:
    """A scan through one shard; each `find` continues where the last one ended."""

    def __init__(
        self,
        scan: SliceScan,
        conditions: ScanConditions,
        pieces: Iterable[Slice],
        project: Projection | None = None,
        known: KnownGroups | None = None,
    ) -> None:
        """
        Scan *pieces*, the slices of the shard.

        *project* makes the table of found rows; by default, of their ids. *known*: the groups that
        are known; None: all slices are to be read.
        """
        self._scan = scan
        self._conditions = conditions
        self._project = project or (lambda rows, _: rows.select([ID]))
        self._blocks = interleaved(pieces)
        self._left: list[Taken] = []
        self._in_flight = conditions.in_flight
        self._known = known
        #: The position of the last slice that was looked at.
        self._position = -1
        #: The found rows, in order.
        self.found: list[pa.Table] = []
        self.count = 0
        self.done = False
        self._scanned = 0
        self._step = STEP_ROWS[0]
        self._slices = STEP_SLICES

    def find(self, count: int | None) -> None:
        """Scan until *count* messages are found in total, or until the end."""
        while not self.done and (count is None or self.count < count):
            self._pass_known()
            sure, unsure = self._next(self._budget(count))
            self._scanned += messages_in([*sure, *unsure])
            if not sure and not unsure:
                break
            grouped = self._conditions.group is not None
            rows = self._heads([*sure, *unsure]) if grouped else self._matching(sure, unsure)
            self.count += rows.num_rows
            if rows.num_rows:
                self.found.append(rows)
        if self.done and self._known is not None:
            self._known.keep(self._position)

    def _pass_known(self) -> None:
        """Skip the slices in which no further group waits, as far as that is known."""
        if self._known is not None and self._in_flight is not None:
            rest = self._known.rest(self._in_flight, self._position)
            if rest is not None:
                self._blocks, self._left = interleaved(rest), []

    def _budget(self, count: int | None) -> int:
        """Return how many rows to scan next."""
        least, most = STEP_ROWS
        if count is None:
            return most
        if self._conditions.group is None and not self._conditions.all:
            # Every row matches.
            return count - self.count
        if self.count:
            likely = int((count - self.count) * MARGIN * self._scanned / self.count)
        else:
            likely, self._step = self._step, self._step * GROWTH
        return min(max(likely, least), most)

    def _next(self, budget: int) -> tuple[list[Taken], list[Taken]]:
        """
        Return about *budget* rows of the following slices that may match.

        First the rows that all match by their statistics, then the others.
        """
        grouped = self._conditions.group is not None
        conditions = self._conditions.eligible if grouped else self._conditions.all
        sure: list[Taken] = []
        unsure: list[Taken] = []
        most, self._slices = self._slices, self._slices * GROWTH
        while budget > 0 and len(sure) + len(unsure) < most:
            block = self._left or [(piece, piece.rows) for piece in next(self._blocks, ())]
            self._left = []
            self.done = not block
            if self.done:
                break
            for piece, rows in block:
                self._position = max(self._position, piece.position)
                decided = decided_by_stats(self._scan, piece, conditions)
                if decided is False:
                    # Its groups stay unknown.
                    self._known = None
                    continue
                # Slices whose rows interleave are scanned together.
                now, later = rows.split(budget) if len(block) == 1 else (rows, EMPTY)
                (unsure if decided is None else sure).append((piece, now))
                self._left = [(piece, later)] if later else []
                budget -= len(now)
        return sure, unsure

    def _matching(self, sure: Sequence[Taken], unsure: Sequence[Taken]) -> pa.Table:
        conditions = self._conditions
        tables = [
            self._project(rows, taken).append_column(PLACE, rows.column(PLACE))
            for rows, taken in matching_rows(
                self._scan, conditions.all, sure, unsure, conditions.keep
            )
        ]
        if not tables:
            # Not at the top: a call of pa.array imports pandas.
            return pa.table({ID: pa.array([], pa.int64())})
        return in_order(pa.concat_tables(tables)).drop_columns([PLACE])

    def _heads(self, taken: Sequence[Taken]) -> pa.Table:
        conditions = self._conditions
        assert conditions.group is not None, "the queue has groups"
        assert self._in_flight is not None, "groups in flight are known"
        columns = columns_of(conditions.all) | conditions.keep | {conditions.group}
        rows = in_order(self._scan.table(taken, columns))
        if self._known is not None:
            self._known.add(rows.column(conditions.group))
        rows = rows.filter(mask(rows, conditions.eligible))
        firsts, self._in_flight = heads(rows.column(conditions.group), self._in_flight)
        rows = rows.take(firsts)
        rows = rows.filter(mask(rows, conditions.matching) & self._wanted(taken, rows))
        return self._project(rows, taken)

    def _wanted(self, taken: Sequence[Taken], rows: pa.Table) -> Mask:
        """Return which rows come before the horizon, and were lost among as many as is asked."""
        conditions, slices = self._conditions, rows.column(SLICE).to_numpy()
        wanted = np.ones(rows.num_rows, dtype=np.bool_)
        if conditions.end is not None and conditions.since is not None:
            times = [-1 if piece.fired_at is None else piece.fired_at for piece, _ in taken]
            at = np.array(times)[slices]
            wanted &= rows.column(PLACE).to_numpy() < conditions.end
            wanted &= (at < conditions.since) | (at > conditions.now)
        if conditions.lost_among is not None:
            lost = np.array([piece.lost_among == conditions.lost_among for piece, _ in taken])
            wanted &= lost[slices]
        return wanted


def matching_rows(
    scan: SliceScan,
    conditions: Sequence[Condition],
    sure: Sequence[Taken],
    unsure: Sequence[Taken],
    columns: frozenset[str],
) -> Iterator[tuple[pa.Table, Sequence[Taken]]]:
    """
    Yield *columns* of the rows that meet all conditions, with the slices of the rows.

    All rows of *sure* slices are known to meet them.
    """
    if sure:
        yield scan.table(sure, columns), sure
    lasting = tuple(condition for condition in conditions if is_lasting(condition))
    passing = tuple(condition for condition in conditions if not is_lasting(condition))
    left = scan.matching(unsure, lasting) if lasting else unsure
    if left:
        rows = scan.table(left, columns_of(passing) | columns)
        yield rows.filter(mask(rows, passing)), left


def heads(groups: pa.ChunkedArray, in_flight: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the indices of the first row of each free group, and all groups in flight then."""
    encoded = groups.combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    firsts = np.empty(len(encoded.dictionary), dtype=np.int64)
    # Backwards, so that the first row of each group wins.
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]
    free = pc.invert(pc.is_in(encoded.dictionary, value_set=in_flight))
    found = pa.array(firsts).filter(free)
    return found, pa.concat_arrays([in_flight, encoded.dictionary.filter(free)])


def decided_by_stats(scan: SliceScan, piece: Slice, conditions: Sequence[Condition]) -> bool | None:
    """Return True if all messages of a slice meet all conditions, False if none do, else None."""
    certain = True
    for condition in conditions:
        stats = scan.stats(piece, condition.columns)
        if not condition.may_match(stats):
            return False
        certain = certain and condition.must_match(stats)
    return True if certain else None
