"""The list that all lists of consumers are: append and delete in O(1), safe for threads.

Singly linked. To take out an entry one would need the one before it, so an entry is only marked as
deleted, and left out by the next pass over the list. The last entry is known, for appending; while
it is the last, it stays in the chain even when it is deleted, since the next one is hung on it.

A pass sees what was in the list when it began and is still there when it gets to it; what is
appended meanwhile too. It holds no lock while its caller looks at an entry, so that the caller may
do anything, also change the list. Source: Qpid's QueueConsumerNodeList.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: Deleted entries that may stay in a list that nobody passes over, beside as many as are alive.
_SLACK = 32


class Entry(Generic[Item]):
    """The place of an item in one list; it takes the item out of there again."""

    __slots__ = ("_following", "_home", "deleted", "item")

    def __init__(self, item: Item, home: EntryList[Item]) -> None:
        self.item = item
        #: Never seen by a pass that comes to it from now on.
        self.deleted = False
        self._following: Entry[Item] | None = None
        self._home = home

    def delete(self) -> bool:
        """Take the item out; True for the one of many callers who did."""
        return self._home._delete(self)


class EntryList(Generic[Item]):
    """Items in the order in which they were appended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Stands before the first one, so that this one can be taken out as any other.
        self._head: Entry[Item] = Entry(None, self)  # type: ignore[arg-type]
        self._tail = self._head
        self._size = 0
        self._deleted = 0

    def append(self, item: Item) -> Entry[Item]:
        """Put an item behind the last one, in O(1)."""
        entry = Entry(item, self)
        with self._lock:
            self._tail._following = entry
            self._tail = entry
            self._size += 1
        return entry

    def first(self) -> Item | None:
        """The item that has been there for longest."""
        return next(iter(self), None)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Item]:
        entry = self._next(self._head)
        while entry is not None:
            yield entry.item
            entry = self._next(entry)

    def __repr__(self) -> str:
        return f"<EntryList of {len(self)}>"

    def _next(self, entry: Entry[Item]) -> Entry[Item] | None:
        """The next one that is there; those between that are not are left out from now on."""
        with self._lock:
            following = entry._following
            while following is not None and following.deleted:
                if following is self._tail:
                    return None
                # Where *entry* itself was left out, this changes nothing that others can see: it
                # still leads to the tail, and so does what it is led past.
                if not entry.deleted:
                    self._deleted -= 1
                    entry._following = following._following
                following = following._following
            return following

    def _delete(self, entry: Entry[Item]) -> bool:
        with self._lock:
            if entry.deleted:
                return False
            entry.deleted = True
            self._size -= 1
            self._deleted += 1
            crowded = self._deleted > self._size + _SLACK
        if crowded:
            # As often as entries are deleted, at most, so that it costs O(1) each.
            for _ in self:
                pass
        return True
