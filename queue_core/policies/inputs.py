"""Where new messages meet queued ones, and what comes of it: plain columns, no catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.rows import Numbers

Flags: TypeAlias = npt.NDArray[np.bool_]

_NONE: Numbers = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class PolicyInput:
    """New messages in order of loading, and the queued ones of their keys in order of places."""

    #: The columns that the policy asked for, of both.
    new: pa.Table
    queued: pa.Table
    #: A number for the key of each; equal keys have equal numbers, from 0 on.
    new_keys: Numbers
    queued_keys: Numbers
    #: Which of the queued ones are in flight.
    retrieved: Flags
    #: The shard of each. A key has one shard.
    new_shards: Numbers
    queued_shards: Numbers
    #: For each queued one, how many messages that wait in its shard stand behind it.
    behind: Numbers

    @property
    def keys(self) -> int:
        """How many numbers of keys there are."""
        return int(self.new_keys.max(initial=-1)) + 1

    @property
    def waiting(self) -> Numbers:
        """Those of the queued ones that wait."""
        return np.flatnonzero(~self.retrieved)


@dataclass(frozen=True, kw_only=True)
class Overwritten:
    """Messages that take over values of others."""

    #: Which ones.
    rows: Numbers = field(default_factory=lambda: _NONE)
    #: Their values from now on, by column.
    values: Mapping[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """What becomes of all messages in an arena."""

    #: Which of the new ones are queued when all is over; the others are left out.
    kept: Flags
    #: Which of the queued ones are gone.
    deleted: Numbers = field(default_factory=lambda: _NONE)
    #: The other queued ones whose answers decided: the verdict is void when they are not as they
    #: were.
    asked: Numbers = field(default_factory=lambda: _NONE)
    #: Queued ones, and new ones that are kept, that take over values.
    overwritten: Overwritten = field(default_factory=Overwritten)
    overwritten_new: Overwritten = field(default_factory=Overwritten)

    @property
    def witnesses(self) -> Numbers:
        """All of the queued ones on which it rests."""
        rests_on = (self.deleted, self.asked, self.overwritten.rows)
        return np.unique(np.concatenate(rests_on))


@dataclass(frozen=True, kw_only=True)
class BoundPolicy:
    """A policy that is ready for the messages of one queue."""

    #: What it reads of each message, besides the key.
    columns: tuple[str, ...]
    evaluate: Callable[[PolicyInput], PolicyResult]
    #: Whether it asks messages in flight as well.
    asks_retrieved: bool = False
    #: Whether the last message that waits in a shard is the only one it asks.
    asks_last_only: bool = False
