"""Rows that conditions matched, cached for the next firings of this process.

A consumer that fires few of many messages meets the others again with each firing. Segments never
change, so whether a row meets a condition over their columns never changes either. The cache is
bounded, at two bits a row, and evicts the least recently used segments first.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from pyroaring import BitMap

from queue_core.segments.lru_cache import LruCache

#: Rows that the cache of a process holds at most.
MOST_ROWS = 1 << 27


class Match(NamedTuple):
    """Rows of one segment: those that were evaluated, and those of them that matched."""

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
        """Add evaluated rows to a match; return the whole of it."""

        def extended(old: Match | None) -> Match:
            return Match(seen, met) if old is None else Match(old.seen | seen, old.met | met)

        return self._matches.update(key, extended)
