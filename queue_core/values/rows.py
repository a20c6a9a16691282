"""Sets of rows of one segment: a range if they are contiguous, or a roaring bitmap.

Pure values. Row numbers are ``uint32``, ranges are half-open.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

#: Row numbers, message ids or places.
Numbers: TypeAlias = npt.NDArray[np.int64]
#: Row numbers as a bitmap holds them.
RowNumbers: TypeAlias = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows *start* (inclusive) to *stop* (exclusive), all of them or those in *bitmap*."""

    #: The lowest row.
    start: int
    #: One past the highest row.
    stop: int
    #: The rows if they have gaps, or None.
    bitmap: BitMap | None = None

    @staticmethod
    def of_bitmap(bitmap: BitMap) -> Rows:
        """Return the rows of a bitmap, as a range if it has no gaps."""
        if not bitmap:
            return EMPTY
        low, high = bitmap.min(), bitmap.max()
        if high - low + 1 == len(bitmap):
            return Rows(low, high + 1)
        return Rows(low, high + 1, bitmap)

    @staticmethod
    def of_numbers(numbers: npt.NDArray[np.integer]) -> Rows:
        """Return the rows with these numbers, which can have any order."""
        return Rows.of_bitmap(bitmap_of(np.ascontiguousarray(numbers, dtype=np.uint32)))

    @staticmethod
    def from_bytes(start: int, stop: int, data: bytes | None) -> Rows:
        """Return the rows that `to_bytes` wrote."""
        return Rows(start, stop, None if data is None else BitMap.deserialize(data))

    def to_bytes(self) -> bytes | None:
        """Return the bitmap in the portable roaring format, or None for a range."""
        return None if self.bitmap is None else packed(self.bitmap)

    def __len__(self) -> int:
        return self.stop - self.start if self.bitmap is None else len(self.bitmap)

    def numbers(self) -> RowNumbers:
        """Return the row numbers, ascending."""
        if self.bitmap is None:
            return np.arange(self.start, self.stop, dtype=np.uint32)
        return np.frombuffer(self.bitmap.to_array(), dtype=np.uint32)

    def as_bitmap(self) -> BitMap:
        """Return the rows as a new bitmap, which the caller can change."""
        return BitMap(range(self.start, self.stop)) if self.bitmap is None else self.bitmap.copy()

    def __and__(self, other: Rows) -> Rows:
        if other is EMPTY:
            return EMPTY
        if self.bitmap is None and other.bitmap is None:
            return self.between(other.start, other.stop)
        return Rows.of_bitmap(self.as_bitmap() & other.as_bitmap())

    def __or__(self, other: Rows) -> Rows:
        if not self or not other:
            return self or other
        return Rows.of_bitmap(self.as_bitmap() | other.as_bitmap())

    def __sub__(self, other: Rows) -> Rows:
        if not self or not other or other.stop <= self.start or other.start >= self.stop:
            return self
        return Rows.of_bitmap(self.as_bitmap() - other.as_bitmap())

    def between(self, start: int, stop: int) -> Rows:
        """Return the rows that lie in a half-open range."""
        low, high = max(self.start, start), min(self.stop, stop)
        if low >= high:
            return EMPTY
        if self.bitmap is None:
            return Rows(low, high)
        return Rows.of_bitmap(self.bitmap & BitMap(range(low, high)))

    def split(self, count: int) -> tuple[Rows, Rows]:
        """Return the first *count* rows, and the others."""
        if count <= 0:
            return EMPTY, self
        if count >= len(self):
            return self, EMPTY
        cut = self.start + count if self.bitmap is None else int(self.bitmap[count])
        return self.between(self.start, cut), self.between(cut, self.stop)


EMPTY = Rows(0, 0)


def bitmap_of(numbers: RowNumbers) -> BitMap:
    """Return the bitmap of row numbers, which can have any order."""
    words = array("I")
    words.frombytes(numbers.tobytes())
    return BitMap(words)


def packed(bitmap: BitMap) -> bytes:
    """Return a bitmap in the portable roaring format."""
    compact = bitmap.copy()
    compact.run_optimize()
    return bytes(compact.serialize())
