"""Cache the rows that match conditions, for the next firings of this process.

A consumer that fires few of many messages evaluates the others again at each firing. Segments never
change, so a condition over their columns never changes its result either. The cache is bounded, at
two bits a row, and evicts the least recently used segments first.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from pyroaring import BitMap

from queue_core.segments.lru_cache import LruCache

#: The most rows in the cache of a process.
MOST_ROWS = 1 << 27


class Match(NamedTuple):
    """The evaluated rows of one segment, and the matching ones among them."""

    seen: BitMap
    met: BitMap


class MatchCache:
    """Matches by segment and condition. Safe for threads."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._matches: LruCache[Hashable, Match] = LruCache(most, lambda match: len(match.seen))

    def of(self, key: Hashable) -> Match:
        """Return the cached match, which the caller must not change."""
        return self._matches.get(key) or Match(BitMap(), BitMap())

    def add(self, key: Hashable, seen: BitMap, met: BitMap) -> Match:
        """Add evaluated rows to a match; return the whole match."""

        def extended(old: Match | None) -> Match:
            return Match(seen, met) if old is None else Match(old.seen | seen, old.met | met)

        return self._matches.update(key, extended)
