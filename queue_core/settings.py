"""What can be set for a queue, parsed and checked once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from typing import Any

from queue_core.errors import BadOption
from queue_core.names import nearest

#: The most shards that a queue can have; a bound of IgnisMQ's too.
MAX_SHARDS = 512
#: Shards of a queue that does not say. Source: IgnisMQ 2.0.
DEFAULT_SHARDS = 8

_COMPRESSIONS = (None, "lz4", "zstd")

#: What can become of a load for which a bounded queue has no room.
OVERFLOWS = ("block", "fail", "ring")

#: The most consumers of a queue. Source: IgnisMQ.
MAX_CONCURRENCY = 100

_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Settings of one queue; all can be changed while it is in use."""

    #: Partitions of a Spark source that does not say, 0 to 100; 0 pauses. Source: IgnisMQ.
    concurrency: int = 8
    #: Seconds that a call of a handler may take; at most half of *sweep_after*. Source: IgnisMQ.
    handler_timeout: float = 10 * 60.0
    #: Seconds after which a fired message counts as stuck. Source: IgnisMQ, 20 minutes.
    sweep_after: float = 20 * 60.0
    #: Seconds between two shovels; none: only when asked. Source: IgnisMQ, 10 minutes.
    shovel_interval: float | None = 600.0
    #: Transactions of one shovel that run side by side, 1 to 50. Source: IgnisMQ.
    shovel_concurrency: int = 4
    #: Messages that one shovel moves at most; none: all.
    shovel_limit: int | None = None
    #: Messages that shovels move in a second at most; none: as fast as it goes.
    shovel_rate: float | None = None
    #: Seconds that a message rests in the sideline before it is shovelled, after its first failure;
    #: twice as long after each further one.
    shovel_backoff: float = 0.0
    #: How often a message may fail before it stays in the sideline for good; none: for ever.
    max_attempts: int | None = None
    #: How often a message may be fired before it stays in the sideline for good; none: for ever.
    max_deliveries: int | None = None
    #: Seconds after which an unfinished message is gone; none: never. Source: IgnisMQ, 2 days.
    message_expiry: float | None = 2 * _DAY
    #: Seconds after its creation at which the queue is given up; none: never. Source: IgnisMQ.
    queue_expiry: float | None = None
    #: Compression of segment files: none, ``lz4`` or ``zstd``.
    compression: str | None = None
    #: Columns of which statistics are kept per slice, so that selectors can skip slices.
    attributes: tuple[str, ...] = field(default=())
    #: Columns of few values, each combination of which is a slice of its own, so that no segment is
    #: opened to find those of one. Source: Herzner, categorisable attributes.
    categories: tuple[str, ...] = field(default=())
    #: Messages that main holds at most, waiting or in flight; 0: a load waits until it is fired;
    #: none: no bound. Source: Herzner, FIFO queue.
    max_size: int | None = None
    #: Bytes that main holds at most, waiting or in flight; none: no bound.
    max_bytes: int | None = None
    #: What becomes of a load for which there is no room: ``block``: it waits; ``fail``; ``ring``:
    #: the oldest that wait make room.
    overflow: str = "block"
    #: The column that says until when a message is wanted; none: ``_expires_at``, if there is one.
    expires_at: str | None = None
    #: The column that says from when on a message may be fired; none: ``_hold_until``, if there is.
    hold_until: str | None = None
    #: The column of numbers of which the greatest is fired first; none: the oldest is.
    priority: str | None = None
    #: Seconds of waiting that count as much as one more of priority; none: waiting does not count.
    #: Source: Herzner, forgotten messages.
    priority_aging: float | None = None
    #: The column of whose messages with one value at most one is in flight, in order of loading.
    group: str | None = None
    #: What a new message does to queued ones of its key, and they to it; none: nothing. Source:
    #: Herzner, smart-message queue.
    policy: str | None = None
    #: The columns by which a message is known again; loaded once more, it is left out.
    dedup: tuple[str, ...] = field(default=())
    #: Seconds for which it is known. Source: SQS, 5 minutes.
    dedup_window: float = 300.0

    def __post_init__(self) -> None:
        for name, low, high in _WHOLE:
            value = getattr(self, name)
            allowed = f"a whole number from {low} to {high}"
            _check(is_whole(value) and low <= value <= high, name, value, allowed)
        for name in _SECONDS:
            value = getattr(self, name)
            _check(_is_number(value) and 0 < value < inf, name, value, "seconds, more than 0")
        for name in _OPTIONAL_SECONDS:
            value = getattr(self, name)
            allowed = "seconds, more than 0, or none"
            _check(value is None or (_is_number(value) and 0 < value < inf), name, value, allowed)
        for name, least in _OPTIONAL_WHOLE:
            value = getattr(self, name)
            allowed = f"a whole number, {least} or more, or none"
            _check(value is None or (is_whole(value) and value >= least), name, value, allowed)
        for name in _OPTIONAL_COLUMNS:
            value = getattr(self, name)
            allowed = "the name of a column, or none"
            _check(value is None or (isinstance(value, str) and value != ""), name, value, allowed)
        _check(self.overflow in OVERFLOWS, "overflow", self.overflow, "block, fail or ring")
        if self.is_rendezvous and self.overflow != "block":
            _check(False, "overflow", self.overflow, "block, since max_size=0 keeps no message")
        rest = self.shovel_backoff
        if self.shovel_rate is not None:
            check_rate("shovel_rate", self.shovel_rate)
        _check(_is_number(rest) and 0 <= rest < inf, "shovel_backoff", rest, "seconds, 0 or more")
        _check(
            self.queue_expiry is None or self.queue_expiry >= (self.message_expiry or 0),
            "queue_expiry",
            self.queue_expiry,
            f"as long as message_expiry ({self.message_expiry}) at least",
        )
        _check(
            self.compression in _COMPRESSIONS, "compression", self.compression, "none, lz4 or zstd"
        )

    @property
    def is_bounded(self) -> bool:
        """Whether a load may find no room."""
        return self.max_size is not None or self.max_bytes is not None

    @property
    def is_rendezvous(self) -> bool:
        """Whether a load waits until its messages are fired."""
        return self.max_size == 0

    @property
    def longest_handling(self) -> float:
        """Seconds that a call of a handler may take, so that it ends well before a sweep."""
        return min(self.handler_timeout, self.sweep_after / 2)

    @property
    def sideline_sweep_after(self) -> float:
        """Seconds after which what is fired from the sideline is stuck: not while it is retried."""
        return max(self.sweep_after, 2 * (self.shovel_interval or 0))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> QueueSettings:
        """Settings from keyword values; raises `BadOption` for an unknown or impossible one."""
        return cls().changed(values)

    def changed(self, values: Mapping[str, Any]) -> QueueSettings:
        """These settings with some changed."""
        known = [setting.name for setting in fields(self)]
        for name in values:
            if name not in known:
                raise BadOption(f"unknown setting {name!r}{nearest(name, known)}")
        given = dict(values)
        for name in _LISTS:
            if name in given:
                given[name] = _names(name, given[name])
        return replace(self, **given)

    @classmethod
    def from_json(cls, text: str) -> QueueSettings:
        """Read what `to_json` wrote; settings of a later version are left out."""
        known = {setting.name for setting in fields(cls)}
        stored = {name: value for name, value in json.loads(text).items() if name in known}
        return cls.of(stored)

    def to_json(self) -> str:
        """The settings as JSON."""
        return json.dumps(asdict(self), sort_keys=True)


_WHOLE = (("concurrency", 0, MAX_CONCURRENCY), ("shovel_concurrency", 1, 50))
_SECONDS = ("handler_timeout", "sweep_after", "dedup_window")
_OPTIONAL_SECONDS = ("shovel_interval", "message_expiry", "queue_expiry", "priority_aging")
_OPTIONAL_WHOLE = (
    ("shovel_limit", 1),
    ("max_attempts", 1),
    ("max_deliveries", 1),
    ("max_size", 0),
    ("max_bytes", 1),
)
_OPTIONAL_COLUMNS = ("expires_at", "hold_until", "priority", "group")
_LISTS = ("attributes", "categories", "dedup")


_COUNT = "a whole number, 1 or more"


def check_shards(shards: int) -> int:
    """Return *shards* if a queue can have so many; raises `BadOption`."""
    _check(
        is_whole(shards) and 1 <= shards <= MAX_SHARDS,
        "shards",
        shards,
        f"a whole number from 1 to {MAX_SHARDS}",
    )
    return shards


def check_seconds(name: str, seconds: float) -> float:
    """Return *seconds* if one can wait so long or look so far back; raises `BadOption`."""
    _check(_is_number(seconds) and 0 <= seconds < inf, name, seconds, "seconds, 0 or more")
    return seconds


def check_rate(name: str, rate: float) -> float:
    """Return *rate* if messages can move so fast; raises `BadOption`."""
    allowed = "messages a second, more than 0, or none"
    _check(_is_number(rate) and 0 < rate < inf, name, rate, allowed)
    return rate


def check_count(name: str, count: int | None) -> int | None:
    """Return *count* if it is None or a whole number of at least 1; raises `BadOption`."""
    _check(count is None or (is_whole(count) and count >= 1), name, count, _COUNT)
    return count


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _names(setting: str, value: Any) -> tuple[str, ...]:
    listed = isinstance(value, Iterable) and not isinstance(value, str)
    names = tuple(value) if listed else ()
    _check(
        listed and all(isinstance(name, str) for name in names),
        setting,
        value,
        "a list of column names",
    )
    return names


def _is_number(value: object) -> bool:
    return is_whole(value) or isinstance(value, float)


def _check(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise BadOption(f"{name}={value!r}: use {allowed}")
