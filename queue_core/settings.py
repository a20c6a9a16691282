"""What can be set for a queue, parsed and checked once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Settings of one queue; all can be changed while it is in use."""

    #: Partitions of a Spark source that does not say, 0 to 100; 0 pauses. Source: IgnisMQ.
    concurrency: int = 8
    #: Seconds after which a fired message counts as stuck. Source: IgnisMQ, 20 minutes.
    sweep_after: float = 20 * 60.0
    #: Compression of segment files: none, ``lz4`` or ``zstd``.
    compression: str | None = None
    #: Columns of which statistics are kept per slice, so that selectors can skip slices.
    attributes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        concurrency, sweep_after = self.concurrency, self.sweep_after
        _check(
            is_whole(concurrency) and 0 <= concurrency <= 100,
            "concurrency",
            concurrency,
            "a whole number from 0 to 100",
        )
        _check(
            _is_number(sweep_after) and 0 < sweep_after < inf,
            "sweep_after",
            sweep_after,
            "seconds, more than 0",
        )
        _check(
            self.compression in _COMPRESSIONS, "compression", self.compression, "none, lz4 or zstd"
        )

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
        if "attributes" in given:
            given["attributes"] = _names(given["attributes"])
        return replace(self, **given)

    def check_attributes(self, columns: Sequence[str]) -> None:
        """Raise `BadOption` unless all attributes are among the queue's *columns*."""
        for name in self.attributes:
            if name not in columns:
                raise BadOption(
                    f"attributes: {name!r} is no column of the queue{nearest(name, columns)}"
                )

    @classmethod
    def from_json(cls, text: str) -> QueueSettings:
        """Read what `to_json` wrote; settings of a later version are left out."""
        known = {setting.name for setting in fields(cls)}
        stored = {name: value for name, value in json.loads(text).items() if name in known}
        return cls.of(stored)

    def to_json(self) -> str:
        """The settings as JSON."""
        return json.dumps(asdict(self), sort_keys=True)


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


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _names(value: Any) -> tuple[str, ...]:
    listed = isinstance(value, Iterable) and not isinstance(value, str)
    names = tuple(value) if listed else ()
    _check(
        listed and all(isinstance(name, str) for name in names),
        "attributes",
        value,
        "a list of column names",
    )
    return names


def _is_number(value: object) -> bool:
    return is_whole(value) or isinstance(value, float)


def _check(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise BadOption(f"{name}={value!r}: use {allowed}")
