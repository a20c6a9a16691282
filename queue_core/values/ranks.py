"""Ranks: the virtual times at which messages of a fair queue are to be fired.

A rank counts ticks, `TICKS` for each message of a flow of weight 1. A flow is a value of the column
`fair_by`. Each message of a flow has a span of ticks to itself, one after another, and its rank
lies within it. The rows of a shard are staged in the order of the ends of their spans, so a line
through the spans describes the ranks of very many rows: a stretch. Ranks are affine in the row
number within a stretch, as places are within a slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: The span of one message of weight 1.
TICKS = 1 << 24
#: The most stretches of the rows that are staged together in one shard.
STRETCHES = 6
#: The most groups of flows, by their starts, into which a load divides the rows of a stretch.
GROUPS = 8

Ticks = npt.NDArray[np.int64]


class Stretch(NamedTuple):
    """Rows of a segment whose ranks are on one line."""

    #: The first row, and one past the last one.
    start: int
    stop: int
    #: The rank of the first row, relative to the start of its flow, and the ticks per row.
    tag: int
    pace: int


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The relative ranks of rows of a staged segment, which were staged together."""

    start: int
    stop: int
    #: In order of the rows.
    stretches: tuple[Stretch, ...]
    #: The keys of the flows, and how many ticks their messages need.
    flows: Ticks
    spans: Ticks
    #: The index of the flow of each row, compressed; None if there is one flow.
    codes: bytes | None

    def flow_of_rows(self) -> Ticks:
        """Return the index of the flow of each row."""
        if self.codes is None:
            return np.zeros(self.stop - self.start, dtype=np.int64)
        # Not at the top: only loads into fair queues need it.
        import zlib

        width = np.uint16 if len(self.flows) <= 1 << 16 else np.uint32
        return np.frombuffer(zlib.decompress(self.codes), dtype=width).astype(np.int64)


def packed(codes: Ticks, flows: int) -> bytes | None:
    """Return the index of the flow of each row, compressed; None if there is one flow."""
    if flows <= 1:
        return None
    import zlib

    return zlib.compress(codes.astype(np.uint16 if flows <= 1 << 16 else np.uint32).tobytes(), 1)


def stretches(low: Ticks, high: Ticks, first_row: int) -> list[Stretch]:
    """
    Return lines through the spans of rows, *low* to *high*, in order of *high*.

    No rank reaches the end of its row's span, so no later message of its flow comes before it.
    Where this would take too many lines, ranks may lie before their spans.
    """
    slack = 0
    while (found := _lines(low, high - 1, slack, first_row)) is None:
        slack = max(slack * 8, TICKS)
    return found


def _lines(low: Ticks, high: Ticks, slack: int, first_row: int) -> list[Stretch] | None:
    """Return as few lines as possible, None if they are more than `STRETCHES`."""
    found: list[Stretch] = []
    at, reached = 0, 0
    while at < len(high):
        if len(found) == STRETCHES:
            return None
        tag = max(int(low[at]), reached)
        steps = np.arange(1, len(high) - at, dtype=np.int64)
        most = np.minimum.accumulate((high[at + 1 :] - tag) // steps)
        least = np.maximum.accumulate(-((tag + slack - low[at + 1 :]) // steps))
        ends = np.flatnonzero(least > most)
        count = int(ends[0]) if len(ends) else len(steps)
        pace = int(most[count - 1]) if count else 0
        found.append(Stretch(first_row + at, first_row + at + 1 + count, tag, pace))
        reached = tag + pace * count
        at += 1 + count
    return found


def groups(starts: Ticks, now: int) -> tuple[npt.NDArray[np.int64], Ticks]:
    """
    Return the group of each flow, and the start of each group.

    *starts* are the ends of what the flows have waiting. Flows with nothing waiting start at *now*.
    Each other group has flows with about as much waiting, and starts at the last end among them.
    """
    behind = np.maximum(starts - now, 0)
    levels = np.zeros(len(starts), dtype=np.int64)
    busy = behind > 0
    levels[busy] = 1 + np.log2(behind[busy]).astype(np.int64)
    found, of = np.unique(levels, return_inverse=True)
    width = 1
    while len(found) > GROUPS:
        width *= 2
        coarse = np.where(busy, 1 + levels // width, 0)
        found, of = np.unique(coarse, return_inverse=True)
    begins = np.full(len(found), now, dtype=np.int64)
    np.maximum.at(begins, of, np.maximum(starts, now))
    return of.astype(np.int64), begins
