"""The list under all lists of consumers: append and delete in O(1), thread-safe.

The list is singly linked. To unlink an entry, one needs the entry before it. So a deletion only
marks the entry, and the next pass over the list unlinks it. The list knows its last entry, for
appending. The last entry stays linked even when it is deleted, because the next one is appended to
it.

A pass sees each item that was in the list when the pass began and is still there when the pass
reaches it, and also items that are appended meanwhile. It holds no lock while its caller looks at
an item, so the caller may do anything, even change the list. Source: Qpid's QueueConsumerNodeList.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: A list without passes keeps at most this many more deleted entries than live ones.
_SLACK = 32


class Entry(Generic[Item]):
    """An item in one list; deletes the item from that list."""

    __slots__ = ("_following", "_home", "deleted", "item")

    def __init__(self, item: Item, home: EntryList[Item]) -> None:
        self.item = item
        #: A pass that reaches it from now on skips it.
        self.deleted = False
        self._following: Entry[Item] | None = None
        self._home = home

    def delete(self) -> bool:
        """Delete the item; True for the one of several callers that did."""
        return self._home._delete(self)


class EntryList(Generic[Item]):
    """Items, in the order in which they were appended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Precedes the first entry, so that the first one can be unlinked like any other.
        self._head: Entry[Item] = Entry(None, self)  # type: ignore[arg-type]
        self._tail = self._head
        self._size = 0
        self._deleted = 0

    def append(self, item: Item) -> Entry[Item]:
        """Append an item, in O(1)."""
        entry = Entry(item, self)
        with self._lock:
            self._tail._following = entry
            self._tail = entry
            self._size += 1
        return entry

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
        """Return the next live entry, and unlink the deleted ones before it."""
        with self._lock:
            following = entry._following
            while following is not None and following.deleted:
                if following is self._tail:
                    return None
                # If *entry* itself is unlinked, no other pass sees this change. It still leads to
                # the tail, and so do the entries that it now skips.
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
            # Each pass unlinks more entries than it keeps, so a deletion costs O(1) on average.
            for _ in self:
                pass
        return True
