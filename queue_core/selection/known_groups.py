"""Known groups: those whose messages wait in a shard, as the last scan to its end has found them.

A scan for the heads of groups cannot tell that no further group waits. So it would read the whole
backlog for each firing, even if the groups are few. With this, a scan that has found a head of each
known group, unless the group has a message in flight, goes on behind the end of the last scan.

A message that comes back to an earlier place counts as released by its shard, and so do those that
a compaction may have joined with earlier ones. Then all is read again. A scan in a transaction of a
caller keeps nothing, since the caller may roll back what it has seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.segments.lru_cache import LruCache
from queue_core.values.model import Slice

#: For how long known groups are known.
SECONDS = 1.0
#: The most bytes of groups that a process keeps.
CACHE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Scanned:
    """What a scan to the end of a shard has found."""

    #: When it began.
    at: float
    #: How many messages the shard had released before.
    released: int
    #: The position of its last slice.
    end: int
    #: The groups of all messages that wait, each once.
    groups: pa.Array


_scanned: LruCache[Hashable, _Scanned] = LruCache(
    CACHE_BYTES, lambda scan: scan.groups.nbytes + 256
)


class KnownGroups:
    """
    The known groups of one shard, for one scan.

    Args:
        shard: What tells the shard, its group column and the rules of the scan from others.
        released: How many messages the shard had released before the scan.
        behind: Returns the slices that begin behind a position.
        keeps: Whether the next scans may know what this one has found.
    """

    def __init__(
        self,
        shard: Hashable,
        released: int,
        behind: Callable[[int], Iterable[Slice]],
        *,
        keeps: bool = True,
    ) -> None:
        self._shard, self._released, self._behind = shard, released, behind
        self._keeps = keeps
        self._at = time.monotonic()
        last = _scanned.get(shard)
        is_valid = last is not None and last.released == released and self._at - last.at < SECONDS
        self._last = last if is_valid else None
        self._groups: list[pa.Array] = []
        #: The position of the last slice that is known.
        self._end = -1

    def rest(self, taken: pa.Array, position: int) -> Iterable[Slice] | None:
        """
        Return the slices behind the last scan if the one up to *position* need not read the others.

        *taken*: groups in flight, or whose heads are found. Returns None if the scan must read on.
        """
        last = self._last
        if last is None or position >= last.end:
            return None
        if not pc.all(pc.is_in(last.groups, value_set=taken), min_count=0).as_py():
            return None
        self._last, self._at, self._end = None, last.at, last.end
        self._groups.append(last.groups)
        return self._behind(last.end)

    def add(self, groups: pa.ChunkedArray) -> None:
        """Note the groups of messages that wait."""
        self._groups.append(pc.unique(groups))

    def keep(self, position: int) -> None:
        """Keep them for the next scan, since this one has ended at the last slice of the shard."""
        if self._groups and self._keeps:
            groups = pc.unique(pa.concat_arrays(self._groups))
            found = _Scanned(self._at, self._released, max(position, self._end), groups)
            _scanned.put(self._shard, found)
