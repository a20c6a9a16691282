"""The options of the sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from queue_core.errors import BadOption
from queue_core.handling.breaker import Breaker
from queue_core.values.address import Address
from queue_core.values.durations import parse_seconds
from queue_core.values.model import Batch
from queue_core.values.names import WRITER, check_consumer, check_queue
from queue_core.values.options import (
    STORE,
    Option,
    boolean,
    by_field,
    camel,
    is_set,
    one_of,
    parse,
    size,
    whole,
    words,
)
from queue_core.values.retry import Retry
from queue_core.values.setting_texts import parse_setting
from queue_core.values.settings import DEFAULT_SHARDS, MAX_SHARDS, OVERFLOWS, QueueSettings

#: Options that are settings of the queue under another name, or with another text.
_NAMED = {
    "maxSize": "max_size",
    "maxBytes": "max_bytes",
    "ttl": "message_expiry",
    "expiresAt": "expires_at",
    "holdUntil": "hold_until",
    "priority": "priority",
    "groupBy": "group",
    "fairBy": "fair_by",
    "retry": "retry",
}
#: Settings that a write may override. A new queue gets those that its first write has.
_OVERRIDES = {"policy": "policy", "dedup": "dedup", "dedup_window": "dedup_window"}
_OF_NEW = {**_OVERRIDES, "on_full": "overflow"}

#: The options by the names of their settings.
_BY_SETTING = {
    setting: option
    for option, name in (*_NAMED.items(), *((camel(each), _OF_NEW[each]) for each in _OF_NEW))
    for setting in (name, camel(name).lower())
}


def _parser(name: str) -> Callable[[str], Any]:
    """Return a parser of a setting that is its own option."""

    def check(text: str) -> Any:
        value = parse_setting(name, text)
        # Weights are allowed beside a column alone.
        beside = {"fair_by": "any"} if name == "fair_weights" else {}
        QueueSettings.of({**beside, name: value})
        return value

    return check


#: The other settings, each an option of its own name.
_OTHERS = tuple(
    each.name
    for each in fields(QueueSettings)
    if each.name not in {*_NAMED.values(), *_OF_NEW.values()}
)


OPTIONS: tuple[Option, ...] = (
    *STORE,
    Option(
        "queue",
        "Queue to write. With `mode=load`, a batch write and the first batch of a streaming query "
        "create it if it does not exist.",
        check_queue,
    ),
    Option(
        "queues",
        "With `mode=settle`, the `queues` of the source, separated by commas. A name such as "
        "`orders_SIDELINE` settles messages of the queue `orders`, here and in `queue`. With "
        "`queueColumn`, the queues to which rows may go; by default, all of the store.",
        words,
    ),
    Option(
        "queueColumn",
        "With `mode=load`, the string column that names the queue of each row, instead of `queue`. "
        "All rows of a batch are loaded in one transaction. The queues do not get the column.",
    ),
    Option(
        "template",
        "With `queueColumn`, a queue whose columns, shards, key and settings new queues get. By "
        "default, rows for a queue that does not exist are an error that names it.",
        check_queue,
    ),
    Option(
        "txnAppId",
        "In a batch write, such as in `foreachBatch`, with `txnVersion`: the name of the writer. "
        "A queue gets the rows only if the version is greater than the last one that this writer "
        "has loaded into it; a warning in the log tells of rows that are left out. A query whose "
        "checkpoint is new or an older copy uses numbers again: give its writer another name.",
    ),
    Option(
        "txnVersion",
        "With `txnAppId`, the number of the write, such as the id of the batch in `foreachBatch`.",
        whole(0, 2**63 - 1),
    ),
    Option(
        "mode",
        "`load`: each row becomes a message. `settle`: each row names a fired message and its "
        "outcome.",
        one_of("load", "settle"),
        "load",
    ),
    Option(
        "key",
        "Column whose hash picks the shard, so that rows with the same key stay in order. By "
        "default, all rows of a task go to one shard, and tasks take the shards in turn. An "
        "existing queue keeps its key.",
    ),
    Option(
        "shards",
        "For a new queue: the number of shards, 1 to 512. First in, first out holds within each "
        "shard; with 1, for the whole queue.",
        whole(1, MAX_SHARDS),
        DEFAULT_SHARDS,
    ),
    Option(
        "maxSize",
        "For a new queue: the most messages it holds. By default, no limit. 0, a rendezvous: the "
        "commit of each batch waits until all messages of the queue are fired.",
        whole(0),
    ),
    Option("maxBytes", "For a new queue: the most bytes it holds. By default, no limit.", size),
    Option(
        "onFull",
        "What happens to a batch when a bounded queue is full. `block`: the commit waits. `fail`: "
        "the query fails. `ring`: the oldest waiting messages are dropped. By default, the queue's "
        "setting `overflow`. A new queue gets it as its setting.",
        one_of(*OVERFLOWS),
    ),
    Option(
        "timeout",
        "How long a commit waits for room in a bounded queue, or until a rendezvous has fired its "
        "messages. Then the query fails; after a restart, it loads the batch, and a rendezvous "
        "waits again for the messages that are left.",
        parse_seconds,
        600.0,
    ),
    Option(
        "mergeSchema",
        "Whether to add columns that the queue lacks; they must be nullable.",
        boolean,
        False,
    ),
    Option(
        "policy",
        "With `mode=load`, the policy that decides about rows and queued messages with the same "
        "key, such as `latest`. The queue needs a key, or one shard, and no log. By default, the "
        "queue's setting `policy`; a queue that has one refuses another. A new queue gets it as "
        "its setting.",
    ),
    Option(
        "dedup",
        "With `mode=load`, columns that identify a message, separated by commas. A row is left out "
        "if its values in these columns were loaded before. By default, the queue's setting "
        "`dedup`; a queue that has one refuses another. A new queue gets it as its setting.",
        words,
    ),
    Option(
        "dedupWindow",
        "How long `dedup` remembers a message, at most as long as the queue's setting "
        "`dedup_window`, which is the default. A new queue gets it as its setting.",
        parse_seconds,
    ),
    Option("ttl", "For a new queue: the time after which its messages expire.", parse_seconds),
    Option(
        "expiresAt",
        "For a new queue: the timestamp column that holds the time at which a message expires. By "
        "default, the column `_expires_at`, if the rows have it.",
    ),
    Option(
        "holdUntil",
        "For a new queue: the timestamp column that holds the time before which a message is not "
        "fired. By default, the column `_hold_until`, if the rows have it.",
    ),
    Option(
        "priority",
        "For a new queue: the numeric column that ranks messages. The message with the greatest "
        "value is fired first. By default, the oldest message is fired first.",
    ),
    Option(
        "groupBy",
        "For a new queue: the key column, which makes each key a group. At most one message of a "
        "group is in flight, and the messages of a group are fired in load order.",
    ),
    Option(
        "fairBy",
        "For a new queue: the column whose values take turns, such as the tenant. By default, the "
        "oldest message is fired first.",
    ),
    *(
        Option(camel(name), f"For a new queue: its setting `{name}`.", _parser(name))
        for name in _OTHERS
    ),
    Option(
        "consumer",
        "With `mode=settle`, the source's `consumer`. Only messages that it still holds are "
        "settled.",
        check_consumer,
    ),
    Option(
        "retry",
        "With `mode=settle`, the policy for sidelined messages, such as `Retry(attempts=5, "
        "backoff=exponential(1))`. By default, the queue's setting `retry`. With `mode=load`, that "
        "setting of a new queue, also `none`.",
        lambda text: None if text.lower() == "none" else Retry.parse(text),
    ),
    Option(
        "breaker",
        "With `mode=settle`, the source's `breaker`, which settlements open and close. Each row "
        "counts as a call, except those of the `kind` `unhandled` or `unreadable`, and has failed "
        "if it is sidelined with the `kind` `exception` or `timeout`.",
        Breaker.parse,
    ),
    Option(
        "output",
        "With `mode=settle`, the queue for the rows that the handler of `consume` returns. They "
        "are loaded in the transaction that settles their messages.",
        check_queue,
    ),
)

#: Options that are settings of the queue.
SETTINGS = {**_NAMED, **{camel(name): name for name in _OTHERS}}

#: The most characters of `txnAppId`.
MAX_APP_ID = 190

# Spark also passes its own options, which this module does not check.
_SPARKS_OWN = ("checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one write, checked."""

    address: Address
    queues: tuple[str, ...]
    mode: str
    #: The column that names the queue of each row; None: all go to `queue`.
    queue_column: str | None = None
    template: str | None = None
    #: The name of a batch writer, and the number of its write.
    txn: tuple[str, int] | None = None
    key: str | None
    shards: int
    merge_schema: bool
    consumer: str | None
    breaker: Breaker | None = None
    output: str | None = None
    on_full: str | None = None
    timeout: float = 600.0
    policy: str | None = None
    dedup: tuple[str, ...] | None = None
    dedup_window: float | None = None
    #: The policy of a settlement; None: the queues' own.
    retry: Retry | None = None
    #: The checkpoint of a streaming query, where Spark passes it on.
    checkpoint: str | None = None
    #: Settings of a queue that is created; an existing queue must have them already.
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def queue(self) -> str:
        """The queue to load."""
        return self.queues[0]

    @property
    def transaction(self) -> Batch | None:
        """The batch of a writer with `txnAppId`; its rows are not compared when it comes again."""
        return None if self.txn is None else Batch(WRITER + self.txn[0], self.txn[1], rows=0)

    @property
    def of_new_queue(self) -> dict[str, Any]:
        """The settings of a queue that is created."""
        return {**self.settings, **self._given(_OF_NEW)}

    def applied_to(self, settings: QueueSettings) -> QueueSettings:
        """Return the settings of a queue with those that this write overrides."""
        return settings.changed(self._given(_OVERRIDES))

    def _given(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of fields that are given, by the names of their settings."""
        values = {setting: getattr(self, name) for name, setting in names.items()}
        return {setting: value for setting, value in values.items() if value is not None}

    @staticmethod
    def of(given: Mapping[str, str]) -> SinkOptions:
        """Parse the options that Spark passes; raises `BadOption` or `BadName`."""
        ours = {name: text for name, text in given.items() if name.lower() not in _SPARKS_OWN}
        values = parse(ours, OPTIONS, "ignis sink", _BY_SETTING)
        chosen = {name.lower() for name in ours}
        if values["mode"] == "settle" and "retry" in chosen and values["retry"] is None:
            raise BadOption(
                "ignis sink: retry=none is a setting of a new queue: remove it with mode=settle"
            )
        queues = (values["queue"],) if values["queue"] else values["queues"] or ()
        if values["queueColumn"] is not None:
            _check_routed(values, chosen)
        elif values["template"] is not None:
            raise BadOption("ignis sink: template is for writes with queueColumn")
        elif values["queue"] and values["queues"]:
            raise BadOption("ignis sink: set queue or queues, not both")
        elif not queues:
            raise BadOption('ignis sink: name a queue: .option("queue", "orders")')
        elif len(queues) > 1 and values["mode"] == "load":
            raise BadOption("ignis sink: mode=load writes one queue: set queue, not queues")
        own = {
            "address": Address.of(
                values["path"], catalog=values["catalog"], storage=values["storage"]
            ),
            "queues": tuple(check_queue(name) for name in queues),
            "txn": _txn(values),
            "checkpoint": next(
                (text for name, text in given.items() if name.lower() == "checkpointlocation"), None
            ),
            "settings": {
                setting: values[option]
                for option, setting in SETTINGS.items()
                # None is a value too, as in shovelInterval=none.
                if option.lower() in chosen
            },
        }
        names = [each.name for each in fields(SinkOptions)]
        return SinkOptions(**{**by_field(values, names), **own})


def _check_routed(values: Mapping[str, Any], chosen: Collection[str]) -> None:
    """Raise `BadOption` for options that say something of one queue."""
    if values["mode"] != "load":
        raise BadOption("ignis sink: queueColumn is for mode=load; with mode=settle, set queues")
    if values["queue"] is not None:
        raise BadOption(
            "ignis sink: set queue or queueColumn, not both; with queueColumn, queues limits the "
            "queues to which rows may go, and template is the model of new ones"
        )
    of_one = ("key", "shards", "mergeSchema", "policy", "dedup", "dedupWindow", "output", *SETTINGS)
    named = [name for name in of_one if name.lower() in chosen and is_set(values[name])]
    if named:
        raise BadOption(
            f"ignis sink: {named[0]} concerns one queue, and queueColumn writes several; set it on "
            "the queues, or on the queue that template names"
        )


def _txn(values: Mapping[str, Any]) -> tuple[str, int] | None:
    name, version = values["txnAppId"], values["txnVersion"]
    if (name is None) != (version is None):
        raise BadOption("ignis sink: set txnAppId and txnVersion together, or neither")
    if name is None:
        return None
    if values["mode"] != "load":
        raise BadOption("ignis sink: txnAppId is for mode=load; a settlement happens once anyway")
    if not 0 < len(name) <= MAX_APP_ID:
        raise BadOption(f"txnAppId={name!r}: use 1 to {MAX_APP_ID} characters")
    return name, version
