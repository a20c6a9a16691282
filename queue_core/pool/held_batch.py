"""`HeldBatch`: messages that a pool holds, and the bytes that are counted for them.

To measure a batch takes longer than to hand it out, so each firing is measured once, and its parts
share its bytes by their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """Messages, one or more, and their bytes."""

    messages: pa.RecordBatch
    bytes: int

    def __len__(self) -> int:
        return int(self.messages.num_rows)

    def split(self, count: int) -> tuple[HeldBatch, HeldBatch | None]:
        """Return the first messages, and the rest."""
        if count >= len(self):
            return self, None
        size = self.bytes * count // len(self)
        rest = HeldBatch(self.messages.slice(count), self.bytes - size)
        return HeldBatch(self.messages.slice(0, count), size), rest


def divided(
    messages: pa.Table, limits: Sequence[int]
) -> tuple[list[HeldBatch | None], HeldBatch | None]:
    """Divide messages evenly, up to each limit; return the parts, and the rest."""
    batches = messages.to_batches()
    # Most firings are one batch, of which a slice costs next to nothing.
    whole = batches[0] if len(batches) == 1 else messages
    left, start = whole.num_rows, 0
    size = whole.nbytes if left else 0
    parts: list[HeldBatch | None] = []
    for number, limit in enumerate(limits):
        count = min(limit, -(-left // (len(limits) - number)))
        parts.append(_part(whole, start, count, size))
        start, left = start + count, left - count
    return parts, _part(whole, start, left, size)


def _part(whole: pa.RecordBatch | pa.Table, start: int, count: int, size: int) -> HeldBatch | None:
    if not count:
        return None
    part = whole.slice(start, count)
    rows = whole.num_rows
    # The bytes of all parts are those of the whole.
    own = size * (start + count) // rows - size * start // rows
    batch = part.combine_chunks().to_batches()[0] if isinstance(part, pa.Table) else part
    return HeldBatch(batch, own)
