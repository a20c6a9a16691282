"""Walking through a shard from its oldest message on, until as many are found as are wanted.

Never all of a large backlog for a few messages: slices come page by page, those of which the
statistics decide are not opened, and of the others so many rows are looked at as are likely to do.
In a queue with groups each message that is found is the head of its group: the oldest that may be
fired of a group of which nothing is in flight. Whether it is what a consumer asks for is looked at
afterwards, or what is asked for would overtake what is older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.model import Slice
from queue_core.plan import Taken, interleaved
from queue_core.rows import EMPTY
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

if TYPE_CHECKING:
    from queue_core.selector import Selector

#: Rows that are looked at in one step, from and to: what is looked at in vain is bounded so.
STEP_ROWS = (1 << 14, 1 << 18)
#: So many times more are looked at than in the step before, while nothing is found.
GROWTH = 4
#: So many times more than what was found until then makes likely.
MARGIN = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConditions:
    """What is looked for in a shard."""

    #: What a message must meet to be eligible at all, and to be what the consumer wants.
    eligible: tuple[Selector, ...]
    wanted: tuple[Selector, ...]
    #: The column of the groups, and which of them have something in flight.
    group: str | None = None
    busy: pa.Array | None = None
    #: Columns to keep of what is found.
    keep: frozenset[str] = frozenset()
    #: With groups: only places before this one, and only what was not fired since this time.
    end: int | None = None
    since: int | None = None

    @property
    def all(self) -> tuple[Selector, ...]:
        """All conditions."""
        return (*self.eligible, *self.wanted)


class ShardScan:
    """A walk through one shard: `find` goes on where the last one ended."""

    def __init__(
        self,
        look: SliceScan,
        asked: ScanConditions,
        pieces: Iterable[Slice],
        told: Callable[[pa.Table, Sequence[Taken]], pa.Table] | None = None,
    ) -> None:
        """*told* makes of rows of some slices what is told of them: their ids, unless given."""
        self._look = look
        self._asked = asked
        self._told = told or (lambda rows, _: rows.select([ID]))
        self._blocks = interleaved(pieces)
        self._left: list[Taken] = []
        self._busy = asked.busy
        #: What was found, in order.
        self.found: list[pa.Table] = []
        self.count = 0
        self.done = False
        self._looked = 0
        self._step = STEP_ROWS[0]

    def find(self, count: int | None) -> None:
        """Go on until so many are found in all, or until the end."""
        while not self.done and (count is None or self.count < count):
            sure, unsure = self._next(self._budget(count))
            self._looked += sum(len(rows) for _, rows in (*sure, *unsure))
            if not sure and not unsure:
                break
            grouped = self._asked.group is not None
            rows = self._heads([*sure, *unsure]) if grouped else self._eligible(sure, unsure)
            self.count += rows.num_rows
            self.found.append(rows)

    def _budget(self, count: int | None) -> int:
        """How many rows to look at next."""
        least, most = STEP_ROWS
        if count is None:
            return most
        if self.count:
            likely = int((count - self.count) * MARGIN * self._looked / self.count)
        else:
            likely, self._step = self._step, self._step * GROWTH
        return min(max(likely, least), most)

    def _next(self, budget: int) -> tuple[list[Taken], list[Taken]]:
        """
        About so many rows of the slices that follow, of those in which something may be eligible.

        First those in which all is, by the statistics.
        """
        conditions = self._asked.all if self._asked.group is None else self._asked.eligible
        sure: list[Taken] = []
        unsure: list[Taken] = []
        while budget > 0:
            block = self._left or [(piece, piece.rows) for piece in next(self._blocks, ())]
            self._left = []
            self.done = not block
            if self.done:
                break
            for piece, rows in block:
                decided = decided_by_stats(self._look, piece, conditions)
                if decided is False:
                    continue
                # Rows of slices that lie between each other are looked at together.
                now, later = rows.split(budget) if len(block) == 1 else (rows, EMPTY)
                (unsure if decided is None else sure).append((piece, now))
                self._left = [(piece, later)] if later else []
                budget -= len(now)
        return sure, unsure

    def _eligible(self, sure: Sequence[Taken], unsure: Sequence[Taken]) -> pa.Table:
        found = eligible_rows(self._look, self._asked.all, sure, unsure, frozenset())
        tables = [rows.select([ID, PLACE]) for rows, _ in found]
        return in_order(pa.concat_tables(tables)).select([ID]) if tables else _NONE

    def _heads(self, taken: Sequence[Taken]) -> pa.Table:
        asked = self._asked
        assert asked.group is not None, "there are groups"
        assert self._busy is not None, "those in flight are known"
        columns = columns_of(asked.all) | asked.keep | {asked.group}
        rows = in_order(self._look.table(taken, columns))
        rows = rows.filter(mask(rows, asked.eligible))
        firsts, self._busy = heads(rows.column(asked.group), self._busy)
        rows = rows.take(firsts)
        rows = rows.filter(mask(rows, asked.wanted) & self._in_time(taken, rows))
        return self._told(rows, taken)

    def _in_time(self, taken: Sequence[Taken], rows: pa.Table) -> Mask:
        """Which of the heads were there when it was said where to end."""
        asked = self._asked
        if asked.end is None or asked.since is None:
            return np.ones(rows.num_rows, dtype=np.bool_)
        at = np.array([-1 if piece.fired_at is None else piece.fired_at for piece, _ in taken])
        places, slices = rows.column(PLACE).to_numpy(), rows.column(SLICE).to_numpy()
        early: Mask = (places < asked.end) & (at[slices] < asked.since)
        return early


_NONE = pa.table({ID: pa.array([], pa.int64())})


def eligible_rows(
    look: SliceScan,
    conditions: Sequence[Selector],
    sure: Sequence[Taken],
    unsure: Sequence[Taken],
    columns: frozenset[str],
) -> Iterator[tuple[pa.Table, Sequence[Taken]]]:
    """
    *columns* of the rows that meet all conditions, and the slices that they are of.

    Of *sure* slices that is known already.
    """
    if sure:
        yield look.table(sure, columns), sure
    lasting = tuple(condition for condition in conditions if is_lasting(condition))
    passing = tuple(condition for condition in conditions if not is_lasting(condition))
    left = look.matching(unsure, lasting) if lasting else unsure
    if left:
        rows = look.table(left, columns_of(passing) | columns)
        yield rows.filter(mask(rows, passing)), left


def heads(groups: pa.ChunkedArray, busy: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Where in order the first of each group stands that is not *busy*, and which are so then."""
    coded = groups.combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy()
    firsts = np.empty(len(coded.dictionary), dtype=np.int64)
    # Backwards, so that the first one has the last word.
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]
    free = pc.invert(pc.is_in(coded.dictionary, value_set=busy))
    found = pa.array(firsts).filter(free)
    return found, pa.concat_arrays([busy, coded.dictionary.filter(free)])


def decided_by_stats(look: SliceScan, piece: Slice, conditions: Sequence[Selector]) -> bool | None:
    """Whether all messages of a slice meet all conditions, or none does; None: look at them."""
    certain = True
    for condition in conditions:
        stats = look.stats(piece, condition.columns)
        if not condition.may_match(stats):
            return False
        certain = certain and condition.must_match(stats)
    return True if certain else None
