"""Sets of message ids, kept as one roaring bitmap per segment.

A message id is ``segment << ROW_BITS | row``: the segment with which the message was loaded, and
its row there. The id does not change when the message moves.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from queue_core.errors import BadOutcome
from queue_core.values.model import MAX_SEGMENT_ROWS, ROW_BITS, ScanTask, Staged
from queue_core.values.rows import EMPTY, Numbers, Rows, bitmap_of, packed


def first_id(segment_id: int) -> int:
    """Return the id of the first message that was loaded with a segment."""
    return segment_id << ROW_BITS


def ids_in_order(first_ids: Sequence[int], staged: Sequence[Staged], order: Numbers) -> pa.Array:
    """Return the id of each row of a load; *order*: its number, counted over all segments."""
    if len(staged) == 1:
        # The path of every small load, where each step counts.
        return pa.array(order + first_ids[0])
    return pa.array(ids_from(first_ids, staged)[order], pa.int64())


def ids_from(first_ids: Sequence[int], staged: Sequence[Staged]) -> Numbers:
    """Return the ids of all messages of some segments, from the first id of each."""
    pairs = zip(first_ids, staged, strict=True)
    return np.concatenate([first + np.arange(segment.rows) for first, segment in pairs])


class IdSet:
    """An immutable set of message ids; small to pickle, whatever their number."""

    __slots__ = ("_blocks",)

    def __init__(self, blocks: dict[int, BitMap] | None = None) -> None:
        self._blocks = blocks or {}

    @staticmethod
    def of(ids: pa.Array | pa.ChunkedArray | Numbers | Iterable[int]) -> IdSet:
        """
        Make a set of message ids.

        Args:
            ids: The ids (int64), in any order, as in the column ``_message_id``.

        Returns:
            The set.

        Raises:
            BadOutcome: A value is null, negative or not a whole number.
        """
        numbers = numbers_of(ids)
        if not len(numbers):
            return IdSet()
        if int(numbers.min()) < 0:
            raise BadOutcome(
                f"{int(numbers.min())} is not a message id; take ids from the column _message_id"
            )
        segments = numbers >> ROW_BITS
        if (segments[1:] < segments[:-1]).any():
            order = np.argsort(segments, kind="stable")
            numbers, segments = numbers[order], segments[order]
        rows = (numbers & (MAX_SEGMENT_ROWS - 1)).astype(np.uint32)
        begins = np.flatnonzero(segments[1:] != segments[:-1]) + 1
        bounds = [0, *begins.tolist(), len(numbers)]
        return IdSet(
            {int(segments[start]): bitmap_of(rows[start:stop]) for start, stop in pairwise(bounds)}
        )

    @staticmethod
    def of_scan(tasks: Iterable[ScanTask]) -> IdSet:
        """
        Return the ids of the messages that some scan tasks read.

        Args:
            tasks: The rows of segments to read, as in a `ReadPlan`.

        Returns:
            The ids as a set.
        """
        blocks: dict[int, BitMap] = {}
        for task in tasks:
            for part in task.parts:
                rows, segment = part.rows.as_bitmap(), task.segment.segment_id
                blocks[segment] = blocks[segment] | rows if segment in blocks else rows
        return IdSet(blocks)

    def __len__(self) -> int:
        return sum(map(len, self._blocks.values()))

    def __repr__(self) -> str:
        return f"<IdSet of {len(self)} messages in {len(self._blocks)} segments>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdSet) and self._blocks == other._blocks

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._blocks)))

    def __or__(self, other: IdSet) -> IdSet:
        if not (self._blocks and other._blocks):
            return self if self._blocks else other
        blocks = dict(self._blocks)
        for segment, bitmap in other._blocks.items():
            blocks[segment] = blocks[segment] | bitmap if segment in blocks else bitmap
        return IdSet(blocks)

    def __and__(self, other: IdSet) -> IdSet:
        if not (self._blocks and other._blocks):
            return IdSet()
        both = self._blocks.keys() & other._blocks.keys()
        met = {segment: self._blocks[segment] & other._blocks[segment] for segment in both}
        return IdSet({segment: bitmap for segment, bitmap in met.items() if bitmap})

    def __sub__(self, other: IdSet) -> IdSet:
        left = {
            segment: bitmap - other._blocks[segment] if segment in other._blocks else bitmap
            for segment, bitmap in self._blocks.items()
        }
        return IdSet({segment: bitmap for segment, bitmap in left.items() if bitmap})

    def __reduce__(self) -> tuple[object, tuple[dict[int, bytes]]]:
        return _unpickle, ({segment: packed(bits) for segment, bits in self._blocks.items()},)

    @property
    def segments(self) -> tuple[int, ...]:
        """Numbers of the segments with which the messages were loaded."""
        return tuple(self._blocks)

    def rows(self, segment_id: int) -> Rows:
        """
        Return the rows of a segment that are in the set.

        Args:
            segment_id: The number of a segment, as in `segments`.

        Returns:
            The row numbers, empty if the set has no message of the segment.
        """
        bitmap = self._blocks.get(segment_id)
        return Rows.of_bitmap(bitmap) if bitmap else EMPTY

    def numbers(self) -> Numbers:
        """
        List the ids.

        Returns:
            The ids as a numpy array (int64), ascending.
        """
        parts = [
            np.frombuffer(self._blocks[segment].to_array(), dtype=np.uint32).astype(np.int64)
            + first_id(segment)
            for segment in sorted(self._blocks)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _unpickle(blocks: dict[int, bytes]) -> IdSet:
    return IdSet({segment: BitMap.deserialize(data) for segment, data in blocks.items()})


def to_text(ids: IdSet) -> str:
    """Return a set as JSON for a table: a bitmap by segment, in base64."""
    _, (blocks,) = ids.__reduce__()
    return json.dumps({str(key): base64.b64encode(bits).decode() for key, bits in blocks.items()})


def from_text(text: str) -> IdSet:
    """Return the set that `to_text` has written; raises `ValueError` for another text."""
    blocks = json.loads(text).items()
    return _unpickle({int(key): base64.b64decode(bits) for key, bits in blocks})


def bounds_of(ids: IdSet) -> tuple[int, int]:
    """Return the lowest and the highest id of a set that is not empty."""
    first, last = min(ids.segments), max(ids.segments)
    return first_id(first) + ids.rows(first).start, first_id(last) + ids.rows(last).stop - 1


def numbers_of(ids: Any) -> Numbers:
    """Return message ids as numbers, in their order; raises `BadOutcome` for anything else."""
    if type(ids) is np.ndarray and ids.ndim == 1 and ids.dtype == np.int64:
        return ids
    try:
        if isinstance(ids, pa.ChunkedArray):
            ids = ids.combine_chunks()
        if not isinstance(ids, pa.Array):
            # Without a type: with an integer type, Arrow would cut fractions off.
            ids = pa.array(ids)
        if ids.null_count:
            raise BadOutcome(f"{ids.null_count} message ids are null")
        if len(ids) and not pa.types.is_integer(ids.type):
            raise BadOutcome(f"message ids are whole numbers, not {ids.type}: {ids[0].as_py()!r}")
        numbers: Numbers = ids.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return numbers
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadOutcome(f"message ids are whole numbers: {error}") from error
