"""The settings of a queue: each described, checked and documented from one declaration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from queue_core.errors import BadOption
from queue_core.values import log_limits
from queue_core.values.durations import (
    FORM,
    LONGEST_SECONDS,
    check_whole,
    in_seconds,
    is_number,
    is_whole,
)
from queue_core.values.limits import Limit, as_limits, text_of
from queue_core.values.names import nearest
from queue_core.values.retry import DEFAULT_RETRY, Retry, as_retry, check_kinds_only
from queue_core.values.weights import RANGE, Weights, as_weights

#: The most shards of a queue. Source: IgnisMQ.
MAX_SHARDS = 512
#: Shards of a queue by default. Source: IgnisMQ 2.0.
DEFAULT_SHARDS = 8

#: The ways in which a full queue treats a load.
OVERFLOWS = ("block", "fail", "ring")
#: When a message of a bounded queue makes room: once it is settled, or once it is fired.
ROOMS = ("on_delete", "on_fire")

#: The most consumers of a queue. Source: IgnisMQ.
MAX_CONCURRENCY = 100


#: Names that users may take for settings, and what is true of them.
_NO_SETTINGS = {
    **dict.fromkeys(("key", "shards"), "fixed when the queue is created"),
    "max_attempts": "no longer a setting; use retry=Retry(attempts=5), or your number",
    "shovel_backoff": "no longer a setting; use retry=Retry(backoff=exponential(60)), or yours",
}


class Allowed(NamedTuple):
    """The values that a setting can have."""

    #: Completes "use …" in errors, and documents the range.
    text: str
    #: Whether a value is one of them.
    check: Callable[[Any], bool]
    #: How a text is read as a value: "seconds", "columns", "number" or "text".
    kind: str = "number"


def _whole(low: int, high: int) -> Allowed:
    return Allowed(
        f"a whole number from {low} to {high}",
        lambda value: is_whole(value) and low <= value <= high,
    )


def _at_least(low: int) -> Allowed:
    return Allowed(f"a whole number, {low} or more", lambda value: is_whole(value) and value >= low)


def _or_none(allowed: Allowed) -> Allowed:
    return Allowed(
        f"{allowed.text}, or none",
        lambda value: value is None or allowed.check(value),
        allowed.kind,
    )


_SECONDS = Allowed(
    f"{FORM}, more than 0",
    lambda value: is_number(value) and 0 < value < inf,
    "seconds",
)
_COUNT = _at_least(1)
_RATE = Allowed("messages a second, more than 0", _SECONDS.check)
_COLUMN = Allowed(
    "the name of a column", lambda value: isinstance(value, str) and value != "", "text"
)
_POLICY = Allowed(
    "the text of a policy, such as 'latest' or 'merge(sum(amount))', or an import path",
    lambda value: isinstance(value, str),
    "text",
)
_COLUMNS = Allowed(
    "a list of column names",
    lambda value: (
        isinstance(value, tuple) and all(isinstance(name, str) and name for name in value)
    ),
    "columns",
)
_COMPRESSION = Allowed("none, lz4 or zstd", lambda value: value in (None, "lz4", "zstd"), "text")
_RETRY = Allowed(
    "a policy such as Retry(attempts=5, backoff=exponential(1, factor=2, max=3600)), or none",
    lambda value: value is None or isinstance(value, Retry),
    "text",
)
_LIMITS = Allowed(
    "limits such as limit(in_flight=100, per_second=10), or none",
    lambda value: isinstance(value, tuple) and all(isinstance(each, Limit) for each in value),
    "text",
)
_WEIGHT = Allowed(
    "a number from 0.001 to 1000",
    lambda value: is_number(value) and RANGE[0] <= value <= RANGE[1],
)
_WEIGHTS = Allowed(
    'a mapping of values to weights from 0.001 to 1000, such as {"acme": 3}, or none',
    lambda value: isinstance(value, tuple) and as_weights(value) == value,
    "text",
)
_LOG = Allowed(
    log_limits.FORM,
    lambda value: isinstance(value, str | None) and log_limits.parsed(value) is not None,
    "text",
)
_CONDITION = _COLUMN._replace(text="a condition, such as amount > 100")
_COLUMN_OR_EMPTY = _POLICY._replace(text="the name of a column, empty")
_WHEN_LATE = Allowed("detach or drop", lambda value: value in ("detach", "drop"), "text")
_OVERFLOW = Allowed("block, fail or ring", lambda value: value in OVERFLOWS, "text")
_ROOM = Allowed("on_delete or on_fire", lambda value: value in ROOMS, "text")


def _setting(default: Any, allowed: Allowed, about: str) -> Any:
    """Declare a field: its default, its range, and sentences for the documentation."""
    return field(default=default, metadata={"about": about, "allowed": allowed})


#: How some messages come before others in a fair queue.
_URGENT = (
    "; for urgent messages first and a fair order among them, keep fair_by, and run a second pool "
    "with a selector, such as 'urgency > 1'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """
    The settings of one queue.

    `Store.create_queue` takes them as keyword arguments. Every process that has opened the store
    can change any of them while the queue is in use, with `QueueAdmin.change_settings` or
    ``ignis set``. Running queries and pools apply a change when they next read the settings.

    A setting in seconds can also be a ``timedelta``, or a text such as ``"90s"``, ``"15 minutes"``,
    ``"2h"`` or ``"1 week"``. More than a hundred years count as a hundred.
    """

    concurrency: int = _setting(
        8,
        _whole(0, MAX_CONCURRENCY),
        "Number of partitions of a Spark query that reads the queue, and of workers of a consumer "
        "pool, unless the query or the pool sets its own number. Of several queues, a query takes "
        "the largest one, and a pool the smallest. Running queries and pools follow a change. More "
        "than 100 counts as 100, but `ignis set` and the sink refuse it. 0 pauses the queue: no "
        "messages are fired. Source: IgnisMQ.",
    )
    handler_timeout: float = _setting(
        10 * 60.0,
        _SECONDS,
        "The longest time in seconds that one call of a handler may take, unless the consumer sets "
        "its own limit. If half of `sweep_after` is less, that is the limit. Running queries and "
        "pools keep the limit with which they began. Source: IgnisMQ.",
    )
    sweep_after: float = _setting(
        20 * 60.0,
        _SECONDS,
        "Age in seconds, counted from its firing, at which an unfinished message is stuck. A sweep "
        "moves stuck messages to the sideline if their consumer is dead. For messages that were "
        "fired from the sideline, twice `shovel_interval` counts if it is more. Source: IgnisMQ, "
        "20 minutes.",
    )
    retry: Retry | None = _setting(  # noqa: RUF009
        DEFAULT_RETRY,
        _RETRY,
        "How often and when the shovel task brings a failed message back to main. After the last "
        "attempt, or if it has expired when it is due, the message is dead: it stays in the "
        "sideline until a person acts. A handler can have its own policy. none: as in IgnisMQ, all "
        "sidelined messages but dead ones come back every `shovel_interval`, without end.",
    )
    shovel_interval: float | None = _setting(
        600.0,
        _or_none(_SECONDS),
        "With `retry` none: seconds between two runs of the shovel task, which puts sidelined "
        "messages back into main. none: messages without a time of their own come back on request "
        "only. Source: IgnisMQ, 10 minutes.",
    )
    shovel_concurrency: int = _setting(
        4,
        _whole(1, 50),
        "The most transactions of one shovel that run at the same time, each on other shards. It "
        "has an effect on PostgreSQL, for shovels without a limit and a rate. SQLite has one "
        "writer, so a shovel runs one transaction at a time there. Source: IgnisMQ.",
    )
    shovel_limit: int | None = _setting(
        None,
        _or_none(_COUNT),
        "The most messages that one shovel moves. It limits neither jobs nor retries whose time "
        "has come. none: no limit.",
    )
    shovel_rate: float | None = _setting(
        None,
        _or_none(_RATE),
        "The most messages per second that return to main from the sideline, by a shovel that is "
        "no job, or as they are due by `retry`. none: no limit.",
    )
    max_deliveries: int | None = _setting(
        None,
        _or_none(_COUNT),
        "Number of firings after which an unfinished message is not fired again, and the next "
        "sweep moves it to the sideline for good. A shovel by force or a requeue does not reset "
        "its number: raise this setting first, or it goes back with the next sweep. none: no "
        "limit.",
    )
    message_expiry: float | None = _setting(
        None,
        _or_none(_SECONDS),
        "Age in seconds, counted from its loading, at which a message in main expires: it is not "
        "fired, and the expiry task removes it. A failed one is dead if it has expired when its "
        "retry is due. none: no expiry by age. IgnisMQ's source code has 2 days.",
    )
    sideline_expiry: float | None = _setting(
        None,
        _or_none(_SECONDS),
        "Age in seconds, counted from its loading, at which a message in the sideline expires, and "
        "the expiry task removes it. none: no message expires in the sideline, not even by its own "
        "expiry column. IgnisMQ's source code has 2 days.",
    )
    queue_expiry: float | None = _setting(
        None,
        _or_none(_SECONDS),
        "Age of the queue in seconds at which it is deactivated. It cannot be less than "
        "`message_expiry`. none: the queue has no such age. The expiry task drops a deactivated "
        "queue later: twice `queue_expiry` after the deactivation, or twice `message_expiry` if "
        "`queue_expiry` is none. If both are none, it stays, and so it does while its sideline has "
        "messages, and while it has subscriptions or clones. Messages that are dropped with it are "
        "reported. Source: IgnisMQ.",
    )
    compression: str | None = _setting(
        None,
        _COMPRESSION,
        "Compression of new segment files. none: files are not compressed.",
    )
    attributes: tuple[str, ...] = _setting(
        (),
        _COLUMNS,
        "Columns whose statistics each new slice keeps, so that a selector skips slices that "
        "cannot match. none: no statistics.",
    )
    categories: tuple[str, ...] = _setting(
        (),
        _COLUMNS,
        "Columns with few distinct values. Each load makes one slice per combination of their "
        "values, so that a selector on them finds its messages without reading segments. A load "
        "with more than 64 combinations is not divided. none: loads are not divided. Source: "
        "Herzner, categorisable attributes.",
    )
    max_size: int | None = _setting(
        None,
        _or_none(_at_least(0)),
        "The most messages in main; `room` says which of them count. Retries may exceed it, and "
        "loads wait then. 0, a rendezvous: each load waits until its messages are fired, and each "
        "commit of a Spark sink until no message waits. none: no limit. Source: Herzner, FIFO "
        "queue.",
    )
    max_bytes: int | None = _setting(
        None,
        _or_none(_COUNT),
        "The most bytes of messages in main, uncompressed; `room` says which of them count. none: "
        "no limit.",
    )
    overflow: str = _setting(
        "block",
        _OVERFLOW,
        "What happens to a load that exceeds `max_size` or `max_bytes`. `block`: it waits. "
        "`fail`: it raises `QueueFull`. `ring`: the oldest waiting messages are dropped.",
    )
    room: str = _setting(
        "on_delete",
        _ROOM,
        "When a message makes room in a queue with `max_size` or `max_bytes`. `on_delete`: when it "
        "leaves main, so messages in flight count. `on_fire`: when it is fired, as in Herzner's "
        "FIFO queue; messages that come back then count again, even above the limit. Messages of "
        "`get_and_keep` count until they leave main.",
    )
    expires_at: str | None = _setting(
        None,
        _or_none(_COLUMN_OR_EMPTY),
        "Name of a timestamp column that holds the time at which each message expires. A message "
        "with a null there does not expire by this column. none: if the queue has a column named "
        "`_expires_at`, that column is used; empty: it is not, as by default in a replay.",
    )
    hold_until: str | None = _setting(
        None,
        _or_none(_COLUMN),
        "Name of a timestamp column that holds the time before which each message is not fired. A "
        "message with a null there is not held. none: if the queue has a column named "
        "`_hold_until`, that column is used.",
    )
    priority: str | None = _setting(
        None,
        _or_none(_COLUMN),
        "Name of a numeric column. The message with the greatest value is fired first, and nulls "
        "come last. none: the oldest message is fired first.",
    )
    priority_aging: float | None = _setting(
        None,
        _or_none(_SECONDS),
        "Seconds of waiting that raise a message's priority by 1. A null priority then counts as "
        "0. none: waiting does not raise priorities. Source: Herzner, forgotten messages.",
    )
    group: str | None = _setting(
        None,
        _or_none(_COLUMN),
        "Name of the queue's key column, which makes each key a group. At most one message of a "
        "group is in flight, and the messages of a group are fired in the order of loading. none: "
        "no groups.",
    )
    limits: tuple[Limit, ...] = _setting(
        (),
        _LIMITS,
        "The most messages that all consumers together fire per second, and have in flight, by the "
        "catalog's clock: a `limit` of the whole queue, one of each value of a column, and some "
        "with a name. All queues with a limit of the same name share it, and get its new values. A "
        "message counts each time it is fired from main. none: no limits.",
    )
    fair_by: str | None = _setting(
        None,
        _or_none(_COLUMN),
        "Name of a column of strings, whole numbers or booleans, such as the tenant. Firings "
        "rotate among the values that have messages waiting in main, so that a large backlog of "
        "one value does not starve the others. The messages of a value keep their order in each "
        "shard. Once a call of a pool's handler takes longer than its time limit, the pool handles "
        "one message at a time of its value, until such a call ends in time. Messages that wait "
        "when it is set or changed come first. It cannot be combined with `group`, `policy` or "
        "`priority`. none: the oldest message is fired first.",
    )
    fair_weights: Weights = _setting(  # noqa: RUF009
        (),
        _WEIGHTS,
        "How many messages values of `fair_by` have in each turn, as a mapping of values to "
        "weights. A change applies to messages that are loaded later. none: each value has the "
        "weight 1.",
    )
    weight: float = _setting(
        1.0,
        _WEIGHT,
        "The queue's part in the micro-batches of a Spark query that reads several queues with "
        "`maxMessagesPerTrigger` or `maxBytesPerTrigger`. A queue of weight 4 gives four times as "
        "many messages or bytes as one of weight 1, as long as both have enough; if one runs "
        "short, the other queues fill its part. If all queues of the query have weight 1, messages "
        "are taken evenly from their shards. Queries with `orderBy` or `order=global`, and "
        "browsers, ignore weights.",
    )
    policy: str | None = _setting(
        None,
        _or_none(_POLICY),
        "Text of the policy that decides about a new message and the queued messages with the "
        "same key, such as `latest`, or the import path of your own check, such as "
        "`shop.policies:check`; policies.md describes all of them. The queue needs a key, or one "
        "shard. none: new messages do not affect queued ones. Source: Herzner, smart-message "
        "queue.",
    )
    dedup: tuple[str, ...] = _setting(
        (),
        _COLUMNS,
        "Columns that identify a message. A load leaves out each message whose values in these "
        "columns were already loaded within `dedup_window`. none: no message is left out.",
    )
    dedup_window: float = _setting(
        300.0,
        _SECONDS,
        "How many seconds `dedup` remembers a loaded message. Source: SQS, 5 minutes.",
    )

    log: str | None = _setting(
        None,
        _LOG,
        "How long the queue's log keeps its messages, also after they have left it. `7 days`: for "
        "that time; `50 GB`: the newest ones of that size; `7 days, 50 GB`: what meets both. "
        "Sizes are uncompressed. What a subscription has not taken in stays. It cannot be combined "
        "with `policy`, nor with `max_size` 0. If it is set to none, the log is removed. none: the "
        "queue has no log.",
    )
    selector: str | None = _setting(
        None,
        _or_none(_CONDITION),
        "Of a subscription: the SQL condition on the messages that it takes, as selectors.md has "
        "it. It can name all columns but `_attempt` and `_fired_at`. Other messages are passed by: "
        "they never come into the subscription. The subscription's depth counts what the log still "
        "has for it, whether it matches or not, so it is an upper bound. A change is valid for "
        "what is taken from the log from then on. none: all messages.",
    )
    late: str | None = _setting(
        None,
        _LOG,
        "Of a subscription: its budget, as a time such as `3 days`, a size such as `100 GB`, or "
        "both. It is exceeded once a message has waited for longer, in the log or in main, or once "
        "all such messages together are larger. When a message comes back, its wait begins anew; "
        "no wait begins before the subscription was made, attached or moved by a seek. Messages "
        "that are held back wait, too. The task `trim` then does what `when_late` says. none: the "
        "log keeps what the subscription has not taken in, however late it is.",
    )
    when_late: str = _setting(
        "detach",
        _WHEN_LATE,
        "What happens to a subscription that exceeds `late`. `detach`: it keeps its place, and "
        "what waits in it, but gets nothing more from the log, which no longer waits for it. "
        "`drop`: it is removed with all its messages. A subscription with `priority` or `group` "
        "takes in all messages before it fires one, so that `detach` would leave them; it needs "
        "`drop`.",
    )

    def __post_init__(self) -> None:
        if isinstance(self.retry, Retry):
            check_kinds_only(self.retry)
        for setting in fields(self):
            allowed: Allowed = setting.metadata["allowed"]
            value = getattr(self, setting.name)
            if allowed.kind == "seconds":
                value = in_seconds(value)
                if is_number(value) and LONGEST_SECONDS < value < inf:
                    value = LONGEST_SECONDS
                object.__setattr__(self, setting.name, value)
            _check(allowed.check(value), setting.name, value, allowed.text)
        if self.is_rendezvous and self.overflow != "block":
            _check(False, "overflow", self.overflow, "block, since max_size=0 keeps no message")
        for other in ("group", "policy", "priority") if self.fair_by is not None else ():
            if getattr(self, other) is not None:
                raise BadOption(
                    f"fair_by cannot be combined with {other}: each says which message is next; "
                    f"set {other} or fair_by to none" + _URGENT * (other == "priority")
                )
        if self.log is not None and (self.policy is not None or self.is_rendezvous):
            what = "policy" if self.policy is not None else "max_size=0"
            raise BadOption(
                f"log cannot be combined with {what}: the log would not have what the queue has; "
                "set one of them to none"
            )
        if self.fair_weights and self.fair_by is None:
            raise BadOption("fair_weights without fair_by: set both, or both to none")
        _check(
            self.queue_expiry is None or self.queue_expiry >= (self.message_expiry or 0),
            "queue_expiry",
            self.queue_expiry,
            f"at least message_expiry ({self.message_expiry})",
        )

    @property
    def budget(self) -> log_limits.LogLimits:
        """How late a subscription may be."""
        return log_limits.limits_of(self.late)

    @property
    def log_limits(self) -> log_limits.LogLimits:
        """How much of its log a queue keeps; it has one."""
        return log_limits.limits_of(self.log)

    @property
    def is_bounded(self) -> bool:
        """Whether a load may find no room."""
        return self.max_size is not None or self.max_bytes is not None

    @property
    def firing_wakes_loads(self) -> bool:
        """Whether a load may wait for a firing: for the room that it makes, or for its messages."""
        return self.has_room_on_fire or self.is_rendezvous

    @property
    def has_room_on_fire(self) -> bool:
        """Whether a firing makes room for loads."""
        return self.is_bounded and self.room == "on_fire"

    @property
    def is_rendezvous(self) -> bool:
        """Whether a load waits until its messages are fired."""
        return self.max_size == 0

    @property
    def longest_handling(self) -> float:
        """The most seconds that a call of a handler may take, which ends well before a sweep."""
        return min(self.handler_timeout, self.sweep_after / 2)

    @property
    def shortest_expiry(self) -> float | None:
        """The least age in seconds at which a message expires in either magazine."""
        known = [age for age in (self.message_expiry, self.sideline_expiry) if age is not None]
        return min(known, default=None)

    @property
    def sideline_sweep_after(self) -> float:
        """Age in seconds at which messages fired from the sideline are stuck."""
        return max(self.sweep_after, 2 * (self.shovel_interval or 0))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> QueueSettings:
        """
        Return settings with some values, and the defaults of the others.

        Args:
            values: Values by the names of settings.

        Returns:
            The checked settings.

        Raises:
            BadOption: A setting is unknown, or its value is not allowed.
        """
        return cls().changed(values)

    def changed(self, values: Mapping[str, Any]) -> QueueSettings:
        """
        Return these settings with some values changed.

        Args:
            values: New values by the names of settings.

        Returns:
            The checked settings.

        Raises:
            BadOption: A setting is unknown, or its value is not allowed.
        """
        known = {setting.name: setting.metadata["allowed"] for setting in fields(self)}
        for name in values:
            if name in _NO_SETTINGS:
                raise BadOption(f"{name} is {_NO_SETTINGS[name]}")
            if name not in known:
                raise BadOption(f"unknown setting {name!r}{nearest(name, known)}")
        given = dict(values)
        for name, value in values.items():
            if known[name] is _COLUMNS:
                given[name] = _names(name, value)
            elif name == "retry":
                given[name] = as_retry(value)
            elif name == "limits":
                given[name] = as_limits(value)
            elif name == "fair_weights":
                given[name] = as_weights(value)
            elif name == "concurrency" and is_whole(value):
                given[name] = min(value, MAX_CONCURRENCY)
        return replace(self, **given)

    def unlike(self, values: Mapping[str, Any]) -> list[str]:
        """
        Return which of some settings have another value here.

        Args:
            values: Values by the names of settings.

        Returns:
            The names, in the order of *values*.

        Raises:
            BadOption: A setting is unknown, or its value is not allowed.
        """
        # As they would be stored.
        wanted = self.from_json(self.of(values).to_json())
        return [name for name in values if getattr(wanted, name) != getattr(self, name)]

    @classmethod
    @lru_cache(maxsize=4096)
    def from_json(cls, text: str) -> QueueSettings:
        """
        Read settings that `to_json` wrote. Results are cached.

        Args:
            text: A JSON object. Settings of a later version are left out.

        Returns:
            The settings.
        """
        known = {setting.name for setting in fields(cls)}
        stored = {name: value for name, value in json.loads(text).items() if name in known}
        # A queue that was created before there were policies has none.
        return cls.of({"retry": None, **stored})

    def to_json(self, stored: str | None = None) -> str:
        """Return the settings as JSON; unknown settings in *stored*, such JSON, are kept."""
        retry = None if self.retry is None else str(self.retry)
        given = {**json.loads(stored or "{}"), **asdict(self), "retry": retry}
        given |= {"limits": text_of(self.limits), "fair_weights": dict(self.fair_weights)}
        return json.dumps(given, sort_keys=True)


# `help(QueueSettings)` describes every setting.
QueueSettings.__doc__ = f"{QueueSettings.__doc__}\n    Attributes:\n" + "\n".join(
    f"        {one.name}: {one.metadata['about']} Default: {one.default!r}. "
    f"Allowed: {one.metadata['allowed'].text}."
    for one in fields(QueueSettings)
)


def check_shards(shards: int) -> int:
    """Return *shards* if a queue can have that number of shards; raises `BadOption`."""
    return check_whole("shards", shards, 1, MAX_SHARDS)


def check_rate(name: str, rate: float | None) -> float | None:
    """Return *rate* if it is None or a number of messages a second; raises `BadOption`."""
    _check(rate is None or _RATE.check(rate), name, rate, f"{_RATE.text}, or none")
    return rate


def check_count(name: str, count: int | None) -> int | None:
    """Return *count* if it is None or a whole number of at least 1; raises `BadOption`."""
    return None if count is None else check_whole(name, count, 1)


def _names(setting: str, value: Any) -> tuple[str, ...]:
    listed = isinstance(value, Iterable)
    # One column may be given by its name alone.
    names = (value,) if isinstance(value, str) else tuple(value) if listed else ()
    _check(listed and _COLUMNS.check(names), setting, value, _COLUMNS.text)
    return names


def _check(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise BadOption(f"{name}={value!r}: use {allowed}")
