"""`HeldBatch`: messages that a pool holds, and the bytes that are counted for them.

To measure a batch takes longer than to hand it out, so each firing is measured once, and its parts
share its bytes by their rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """Messages, one or more, and their bytes."""

    messages: pa.RecordBatch
    bytes: int
    #: Whether there may be others, which another worker could take.
    more: bool = True

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
    messages: pa.Table, limits: Sequence[int], *, more: bool = True
) -> tuple[list[HeldBatch | None], list[HeldBatch]]:
    """
    Divide messages evenly, up to each limit; return the parts, and the rest.

    *more* says whether others may have waited with them. When the rest is handed out, others may.
    """
    rows = left = messages.num_rows
    size = messages.nbytes if rows else 0
    pieces = deque(HeldBatch(each, size * len(each) // rows) for each in combined(messages))
    parts: list[HeldBatch | None] = []
    for number, limit in enumerate(limits):
        part, rest = None, None
        if pieces:
            part, rest = pieces.popleft().split(min(limit, -(-left // (len(limits) - number))))
            left -= len(part)
        if rest is not None:
            pieces.appendleft(rest)
        parts.append(part)
    others = more or bool(pieces)
    return [part and replace(part, more=others) for part in parts], list(pieces)


def combined(messages: pa.Table) -> list[pa.RecordBatch]:
    """Return messages in few batches: in one, unless a column has more than 2 GiB."""
    if len(messages.to_batches()) > 1:
        # Nested columns of this size cannot be combined at all.
        with suppress(pa.ArrowInvalid):
            messages = messages.combine_chunks()
    return [batch for batch in messages.to_batches() if batch.num_rows]
