"""What conditions said of the rows of segments, remembered for the next firings of this process.

A consumer that takes few of many leaves the others in its way, and meets them again each time.
Segments never change, so what a condition over their columns said of a row stays so. The memory is
bounded, two bits a row at most, and what was not asked for longest is forgotten first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from pyroaring import BitMap

#: Rows that a process remembers something of.
MOST_ROWS = 1 << 27


class Match(NamedTuple):
    """Rows of one segment: those that were looked at, and which of them meet the conditions."""

    seen: BitMap
    met: BitMap


class MatchCache:
    """Findings by what they are of. Safe for threads."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._rows = 0
        self._known: OrderedDict[Hashable, Match] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: Hashable) -> Match:
        """What is known; never to be changed."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return Match(BitMap(), BitMap())
            self._known.move_to_end(key)
            return found

    def add(self, key: Hashable, seen: BitMap, met: BitMap) -> Match:
        """Remember more rows; return all that is known then."""
        with self._lock:
            old = self._known.get(key)
            new = Match(seen, met) if old is None else Match(old.seen | seen, old.met | met)
            self._known[key] = new
            self._known.move_to_end(key)
            self._rows += len(new.seen) - (0 if old is None else len(old.seen))
            while self._rows > self._most and len(self._known) > 1:
                _, forgotten = self._known.popitem(last=False)
                self._rows -= len(forgotten.seen)
            return new
