"""Fire requests: what a firing may take, and the candidates that were found for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import ColumnElement

from queue_core.catalog.slices import ShardKey
from queue_core.ids import IdSet
from queue_core.model import Magazine
from queue_core.selection.selection import Selection

#: Conditions on slices, all of which must hold.
Rules: TypeAlias = tuple[ColumnElement[bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRequest:
    """What a firing may take."""

    #: The queues, of one schema.
    queue_ids: tuple[int, ...]
    magazine: Magazine = Magazine.MAIN
    max_messages: int | None = None
    #: A firing takes at least one message, also if that one is larger.
    max_bytes: int | None = None
    #: Only places before these, and only what was not fired since; from `horizon`.
    horizon: Horizon | None = None
    #: Only rows that a selector lets through, and first what an order puts first.
    selection: Selection | None = None
    #: Only slices that meet all of these: what the settings of the queues say.
    rules: Rules = ()
    #: Only of these shards; None: of all.
    shards: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """A moment: what was loaded by then, so that a query can end when it has handled that."""

    #: The load pointer of each shard.
    pointers: Mapping[ShardKey, int]
    at: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The messages that a selection lets through, by a look outside of the transaction."""

    ids: IdSet
    #: How many messages had been fired from shards until then, where that must not change: in a
    #: queue with groups another one may be the head by now.
    fired: Mapping[ShardKey, int]
    #: The shards of which what was picked keeps the limit of bytes already, by an order.
    ranked: frozenset[ShardKey]
