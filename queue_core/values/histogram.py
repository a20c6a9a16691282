"""Histograms of seconds: how many messages took how long, by buckets that all processes share.

The upper bound of a bucket is at most 2.5 times its lower bound, so a quantile is known up to that
factor. The counts of several processes can be added up. Pure functions over arrays.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Messages by bucket.
Counts = npt.NDArray[np.int64]

#: The upper bounds of the buckets in seconds: 1 ms to 6 days. The last bucket has none.
BOUNDS = tuple(float(f"{digit}e{power}") for power in range(-3, 6) for digit in (1, 2, 5))
BUCKETS = len(BOUNDS) + 1
#: The bounds that metrics have: two of each power of ten, from 5 ms to 3 hours.
SHOWN = tuple(bound for bound in BOUNDS if 0.005 <= bound <= 10_000 and f"{bound:e}"[0] != "2")
_SHOWN_AT = [BOUNDS.index(bound) for bound in SHOWN]
_EDGES = np.array(BOUNDS)
#: A bucket with messages, as bytes.
_PAIR = np.dtype([("bucket", "u1"), ("count", "<u4")])


def nothing() -> Counts:
    """Return counts of no message."""
    return np.zeros(BUCKETS, np.int64)


def counted(seconds: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Counts:
    """Return the messages by bucket; *weights*: how many took as long as each."""
    places = np.searchsorted(_EDGES, seconds)
    return np.bincount(places, weights, BUCKETS).astype(np.int64)


def packed(counts: Counts) -> bytes | None:
    """Return the buckets that have messages as bytes; None: none has."""
    there = np.flatnonzero(counts)
    if not len(there):
        return None
    pairs = np.empty(len(there), _PAIR)
    pairs["bucket"], pairs["count"] = there, np.minimum(counts[there], 2**32 - 1)
    return pairs.tobytes()


def unpacked(data: bytes | None, size: int = BUCKETS) -> Counts:
    """Return the counts of `packed`."""
    counts = np.zeros(size, np.int64)
    if data:
        pairs = np.frombuffer(data, _PAIR)
        counts[pairs["bucket"]] = pairs["count"]
    return counts


def shown(counts: Counts) -> list[int]:
    """Return how many messages took at most each of the `SHOWN` times, and how many there are."""
    upto = np.cumsum(counts)
    return [*upto[_SHOWN_AT].tolist(), int(upto[-1])]


def quantile(counts: Counts, part: float) -> float | None:
    """Return the seconds within which a part of the messages was done; None without messages."""
    upto = np.cumsum(counts)
    if not upto[-1]:
        return None
    wanted = part * upto[-1]
    bucket = int(np.searchsorted(upto, wanted))
    if bucket >= len(BOUNDS):
        return BOUNDS[-1]
    low = BOUNDS[bucket - 1] if bucket else 0.0
    within = (wanted - (upto[bucket] - counts[bucket])) / counts[bucket]
    return float(low + within * (BOUNDS[bucket] - low))


class Measured(NamedTuple):
    """How long some messages took: by bucket, and in all."""

    counts: Counts
    seconds: float

    @staticmethod
    def of(seconds: npt.ArrayLike, messages: npt.ArrayLike | None = None) -> Measured:
        """
        Return the measures of messages that took these seconds; not known: nan.

        *messages*: how many took as long as each; by default, one.
        """
        times = np.asarray(seconds, np.float64)
        weights = None if messages is None else np.asarray(messages)
        known = ~np.isnan(times)
        if not known.all():
            times, weights = times[known], None if weights is None else weights[known]
        total = times.sum() if weights is None else times @ weights
        return Measured(counted(times, weights), float(total))

    @staticmethod
    def of_one(seconds: float, messages: int) -> Measured:
        """Return the measures of some messages that took the same time."""
        counts = nothing()
        counts[bisect_left(BOUNDS, seconds)] = messages
        return Measured(counts, seconds * messages)

    def plus(self, other: Measured) -> Measured:
        """Return both together."""
        return Measured(self.counts + other.counts, self.seconds + other.seconds)
