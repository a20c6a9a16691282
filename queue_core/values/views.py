"""The columns of a store's metadata views, with their descriptions. Needs no catalog.

Source: Magazine has the counters and pointers per shard, and IgnisMQ the other statistics.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from queue_core.values.failure_kinds import FAILURE_LOG
from queue_core.values.schema import TIMESTAMP

_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()


class ViewColumn(NamedTuple):
    """One column of a view."""

    name: str
    type: pa.DataType
    #: A phrase for the documentation.
    about: str


def _schema(columns: tuple[ViewColumn, ...]) -> pa.Schema:
    return pa.schema([(column.name, column.type) for column in columns])


_QUEUE = ViewColumn("queue", _TEXT, "Name of the queue.")
_MAGAZINE = ViewColumn("magazine", _TEXT, "`main` or `sideline`.")
_SHARD = ViewColumn("shard", _INT, "Number of the shard, from 0.")

_OLDEST = ViewColumn(
    "oldest_age",
    pa.float64(),
    "Seconds since the oldest message at the head of a shard of main was loaded; null: none waits.",
)
_WAIT = ViewColumn(
    "longest_wait",
    pa.float64(),
    "Seconds since such a message came into main, new or from the sideline; null: none waits.",
)

_FINGERPRINT = (
    "First line of the reason, with `*` for numbers, ids, quoted values and addresses; failures "
    "that are alike have the same."
)

#: How long messages took: in the last five minutes, or in the time of a sample. Null: none was
#: fired, or handled.
_TIMES = tuple(
    ViewColumn(
        f"{name}_{end}", pa.float64(), f"Seconds within which {part} of the messages {about}."
    )
    for name, about in {
        "waiting": "were fired, after they had come into main",
        "handling": "were handled, each call by itself",
    }.items()
    for end, part in {"p50": "half", "p99": "99 of 100"}.items()
)

_QUEUES = (
    _QUEUE,
    ViewColumn("shards", _INT, "How many shards it has."),
    ViewColumn("key", _TEXT, "Column whose hash picks the shard; null: none."),
    ViewColumn("columns", _TEXT, "Its columns, each with its Arrow type."),
    ViewColumn("waiting", _LONG, "Messages that wait in main."),
    ViewColumn("in_flight", _LONG, "Messages that were fired and are not settled."),
    ViewColumn("sidelined", _LONG, "Messages that wait in the sideline."),
    ViewColumn("retrying", _LONG, "Of these, messages that return to main at a time."),
    ViewColumn("dead", _LONG, "Of these, messages that are not tried again."),
    ViewColumn("damaged", _LONG, "Messages whose segment cannot be read."),
    _OLDEST,
    _WAIT,
    *_TIMES,
    ViewColumn("bytes", _LONG, "Size of all its messages, uncompressed."),
    ViewColumn("settings", _TEXT, "Its settings, as JSON."),
    ViewColumn("created_at", TIMESTAMP, "Time of its creation."),
    ViewColumn("deactivated_at", TIMESTAMP, "Time of its deactivation; null while it is in use."),
    ViewColumn(
        "paused_at", TIMESTAMP, "Time since which it fires nothing, because a person paused it."
    ),
    ViewColumn(
        "state", _TEXT, "`active`, `paused` by a person or a concurrency of 0, or `deactivated`."
    ),
)

_SHARDS = (
    _QUEUE,
    _MAGAZINE,
    _SHARD,
    ViewColumn("load_pointer", _LONG, "Place that the next message of the shard gets."),
    ViewColumn("fire_pointer", _LONG, "One past the highest place that was fired."),
    ViewColumn("sweep_pointer", _LONG, "Place where an interrupted sweep continues; 0: none."),
    ViewColumn("loaded", _LONG, "Messages that entered the shard, by any verb."),
    ViewColumn("fired", _LONG, "Messages that were fired or left, by any verb."),
    ViewColumn("reloaded", _LONG, "Fired messages that wait again at their old places."),
    ViewColumn("deleted", _LONG, "Messages that were processed and deleted."),
    ViewColumn(
        "sidelined", _LONG, "Messages that left for the sideline: failed, put off or moved by hand."
    ),
    ViewColumn("shovelled", _LONG, "Messages that left the sideline for main or another queue."),
    ViewColumn("returned", _LONG, "Of these, messages that left it for main."),
    ViewColumn("swept", _LONG, "Messages that were stuck, or fired too often, and were sidelined."),
    ViewColumn(
        "damaged", _LONG, "Messages that are set apart now, since their segment is damaged."
    ),
    ViewColumn("expired", _LONG, "Messages that expired and were removed."),
    ViewColumn("ignored", _LONG, "Messages that a load left out, as duplicates or by a policy."),
    ViewColumn("replaced", _LONG, "Messages that a policy removed in favour of newer ones."),
    ViewColumn("dropped", _LONG, "Messages that a ring, seek or failed rendezvous dropped."),
    ViewColumn("waiting", _LONG, "Messages that wait now."),
    ViewColumn("in_flight", _LONG, "Messages that are in flight now."),
)

_SLICES = (
    _QUEUE,
    _MAGAZINE,
    _SHARD,
    ViewColumn("position", _LONG, "Place of its first row in the shard."),
    ViewColumn("state", _TEXT, "`loaded`, `fired` or `damaged`."),
    ViewColumn("messages", _LONG, "How many messages it has."),
    ViewColumn(
        "bytes", _LONG, "Size of the messages, uncompressed; an estimate once a segment is split."
    ),
    ViewColumn("attempts", _INT, "How often the messages have failed."),
    ViewColumn("deliveries", _INT, "How often the messages have been fired, without losses."),
    ViewColumn("loaded_at", TIMESTAMP, "Time at which the oldest of the messages was loaded."),
    ViewColumn("moved_at", TIMESTAMP, "Time at which the messages entered this magazine."),
    ViewColumn("consumer", _TEXT, "Consumer that holds the messages; null while they wait."),
    ViewColumn("ticket", _LONG, "Ticket that holds the messages; null while they wait."),
    ViewColumn("fired_at", TIMESTAMP, "Time of the firing; null while the messages wait."),
    ViewColumn("location", _TEXT, "Segment file; null when the catalog holds the bytes."),
    ViewColumn("segment_id", _LONG, "Number of the segment."),
    ViewColumn(
        "lost", _INT, "How often they were lost with their consumer since the last settlement."
    ),
    ViewColumn("lost_among", _INT, "How many that consumer held; 0: they are not suspects."),
)

_CONSUMERS = (
    ViewColumn("consumer", _TEXT, "Name of the consumer."),
    ViewColumn("epoch", _LONG, "Which of its lives is the current one."),
    ViewColumn("last_ticket", _LONG, "The highest number that its tickets may have."),
    ViewColumn("acknowledged", _LONG, "Number up to which its tickets are finished."),
    ViewColumn("in_flight", _LONG, "Messages that it holds."),
    ViewColumn(
        "for_restart",
        _LONG,
        "Of these, messages that no sweep takes: if its query is dead, they wait for its restart.",
    ),
    ViewColumn("ack", _TEXT, "How its query finishes messages; null: it is not a query."),
    ViewColumn("priority", _INT, "Its priority; the highest goes first, null before all."),
    ViewColumn("interested", _TEXT, "Queues from which it wants messages; null: not reported."),
    ViewColumn("claim", _TEXT, "Whether it shares its queues or has them to itself."),
    ViewColumn("heartbeat_at", TIMESTAMP, "Time of its last heartbeat."),
    ViewColumn("host", _TEXT, "Machine that started its current life; null: not known."),
    ViewColumn("pid", _LONG, "Id of the process that started it."),
    ViewColumn("created_at", TIMESTAMP, "Time of its first life."),
)

_FAILURES = (
    _QUEUE,
    *(
        ViewColumn(field.name, field.type, about)
        for field, about in zip(
            FAILURE_LOG,
            (
                "Id of the message.",
                "Kind of the failure, such as `rejected`, `exception` or `timeout`.",
                "Details of the failure; null when the kind says it all.",
                "How often the message had failed before.",
                "Consumer that held the message.",
                "Time of the failure.",
            ),
            strict=True,
        )
    ),
    ViewColumn("fingerprint", _TEXT, _FINGERPRINT),
)

_TRACES = (
    _QUEUE,
    ViewColumn("kind", _TEXT, "Kind of the failures."),
    ViewColumn("fingerprint", _TEXT, _FINGERPRINT),
    ViewColumn("message_id", _LONG, "Id of the message of one of the failures."),
    ViewColumn("failed_at", TIMESTAMP, "Time of its failure."),
    ViewColumn("trace", _TEXT, "End of the trace of its exception."),
)

_SIDELINE = (
    _QUEUE,
    ViewColumn("message_id", _LONG, "Id of the message."),
    _SHARD,
    ViewColumn("attempts", _INT, "How often the message has failed."),
    ViewColumn("deliveries", _INT, "How often the message has been fired, without losses."),
    ViewColumn("sidelined_at", TIMESTAMP, "Time at which the message entered the sideline."),
    ViewColumn("due_at", TIMESTAMP, "Time at which it returns to main; null: no time."),
    ViewColumn("dead", pa.bool_(), "Whether it is not tried again, until a person acts."),
    ViewColumn("kind", _TEXT, "Kind of its last failure; null: it has not failed."),
    ViewColumn("reason", _TEXT, "Details of its last failure."),
    ViewColumn("fingerprint", _TEXT, _FINGERPRINT),
)

_MOVED = (
    ViewColumn("shard", _INT, "Shard in which the task moved messages; null for the store."),
    ViewColumn("moved", _LONG, "How many messages, or files, the task moved."),
    ViewColumn("from", _TEXT, "Where they were."),
    ViewColumn("to", _TEXT, "Where they are; null when they were removed."),
)

_REPORTS = (
    ViewColumn(
        "task",
        _TEXT,
        "Name of the side task; `by_hand`: a person did it; `restore`: tickets were forgotten.",
    ),
    ViewColumn("queue", _TEXT, "Queue on which it ran; null for the store."),
    *_MOVED,
    ViewColumn("when", TIMESTAMP, "Time of the transaction."),
)

_JOBS = (
    ViewColumn("job", _TEXT, "Id of the job."),
    _QUEUE,
    ViewColumn(
        "target",
        _TEXT,
        "Queue to which it moves sidelined messages; null: back to main; `(dropped)`: it is gone.",
    ),
    ViewColumn("selector", _TEXT, "Condition on the messages; null: all."),
    ViewColumn("rate", pa.float64(), "The most messages per second; null: no limit."),
    ViewColumn("limit", _LONG, "The most messages; null: all."),
    ViewColumn("by_id", pa.bool_(), "Whether it moves only messages that were chosen by id."),
    ViewColumn("force", pa.bool_(), "Whether it moves dead messages too."),
    ViewColumn("state", _TEXT, "`waiting`, `running`, `done`, `cancelled` or `failed`."),
    ViewColumn("moved", _LONG, "Messages that it has moved."),
    ViewColumn("total", _LONG, "Messages that there were for it when it began."),
    ViewColumn(
        "moved_per_s",
        pa.float64(),
        "Messages per second since it was started; in its first 30 seconds, its rate.",
    ),
    ViewColumn(
        "seconds_left", pa.float64(), "Seconds until its end at `moved_per_s`; null: not known."
    ),
    ViewColumn("who", _TEXT, "Person or process that started it."),
    ViewColumn("begun_at", TIMESTAMP, "Time at which it was started."),
    ViewColumn(
        "due_at", TIMESTAMP, "Time of its next step, by the rate; null: no process has begun it."
    ),
    ViewColumn("ended_at", TIMESTAMP, "Time of its end; null while it is not at its end."),
    ViewColumn("error", _TEXT, "The error with which it failed, or why it does not move now."),
)

_ACTS = (
    ViewColumn("act", _TEXT, "Id of the act."),
    ViewColumn("queue", _TEXT, "Name of the queue, also if it is dropped; null: the store."),
    ViewColumn("verb", _TEXT, "What was done, such as `pause`: the command, or Python's method."),
    ViewColumn(
        "who",
        _TEXT,
        "User of the process, or `carol as root` with sudo, or name with which the person logged "
        "in.",
    ),
    ViewColumn("host", _TEXT, "Machine on which the process ran."),
    ViewColumn("by", _TEXT, "`python`, `command line` or `console`."),
    ViewColumn("selector", _TEXT, "Condition by which messages were chosen; null: none."),
    ViewColumn("chosen", _TEXT, "The other arguments, as JSON."),
    ViewColumn(
        "messages", _LONG, "Messages that it has changed so far; null: it does not change messages."
    ),
    ViewColumn("begun_at", TIMESTAMP, "Time of its first transaction."),
    ViewColumn(
        "ended_at", TIMESTAMP, "Time of its end; null: it goes on, or its process ended before."
    ),
    ViewColumn("error", _TEXT, "The error that ended it."),
)

_LIMITS = (
    _QUEUE,
    ViewColumn("limit", _TEXT, "The limit, as the setting `limits` has it."),
    ViewColumn("value", _TEXT, "Value of its column, as JSON; null: the whole queue."),
    ViewColumn(
        "in_flight",
        _LONG,
        "Messages in flight from main, of all queues that share a limit with a name; null: the "
        "limit of values has none.",
    ),
    ViewColumn(
        "tokens",
        _LONG,
        "Messages that may be fired now, from these queues together; null without `per_second`.",
    ),
    ViewColumn("next_at", TIMESTAMP, "Time at which `per_second` allows more messages; null: now."),
)

_BREAKERS = (
    ViewColumn("breaker", _TEXT, "Name of the breaker: by default, its queues."),
    ViewColumn("state", _TEXT, "`closed`; `open`: no messages are fired; or `probing`."),
    ViewColumn("forced", pa.bool_(), "Whether a person has opened or closed it."),
    ViewColumn("since_at", TIMESTAMP, "Time at which it came into this state."),
    ViewColumn(
        "opened_at", TIMESTAMP, "Time at which it opened, before all probes; null: it is closed."
    ),
    ViewColumn("until_at", TIMESTAMP, "Time of the next probe; null: none is planned."),
    ViewColumn("opened", _LONG, "How often it has opened."),
    ViewColumn("consumer", _TEXT, "Consumer that changed its state last; null: a person."),
)

_SAMPLES = (
    _QUEUE,
    ViewColumn(
        "seconds",
        _INT,
        "Seconds that the row stands for: 10, 60 or 3600. A row of 60 or 3600 has the highest "
        "numbers and the mean rates of that time.",
    ),
    ViewColumn("taken_at", TIMESTAMP, "Time of its newest sample."),
    ViewColumn("waiting", _LONG, "Messages that waited in main."),
    _OLDEST,
    _WAIT,
    ViewColumn("in_flight", _LONG, "Messages that were in flight."),
    ViewColumn("sidelined", _LONG, "Messages that waited in the sideline."),
    ViewColumn("retrying", _LONG, "Of these, messages that return to main at a time."),
    ViewColumn("dead", _LONG, "Of these, messages that are not tried again."),
    *(
        ViewColumn(f"{counter}_per_s", pa.float64(), f"{about}, per second; null: unknown.")
        for counter, about in {
            "loaded": "Messages that were new in main",
            "returned": "Messages that came back to main from the sideline",
            "fired": "Growth of main's counter `fired`",
            "deleted": "Growth of main's counter `deleted`",
            "sidelined": "Growth of main's counter `sidelined`",
        }.items()
    ),
    *_TIMES,
)

_SUBSCRIPTIONS = (
    ViewColumn("queue", _TEXT, "Name of the subscription."),
    ViewColumn("log_of", _TEXT, "Queue whose log it reads."),
    ViewColumn("state", _TEXT, "`reading`, or `detached`: it gets nothing more from the log."),
    ViewColumn("selector", _TEXT, "Its selector; null: it takes all messages."),
    ViewColumn(
        "behind",
        _LONG,
        "Messages that it has not handed out, in the log or waiting in main. With a selector, it "
        "is an upper bound.",
    ),
    ViewColumn(
        "behind_seconds",
        pa.float64(),
        "Seconds since the first of them was loaded or came back; null: none.",
    ),
    ViewColumn("behind_bytes", _LONG, "Size of them, uncompressed."),
    ViewColumn("late", _TEXT, "Its budget, as the setting `late` has it; null: none."),
    ViewColumn("when_late", _TEXT, "`detach` or `drop`, what happens at the end of the budget."),
    ViewColumn(
        "headroom",
        pa.float64(),
        "Seconds until its budget ends if it hands out nothing; a size ends at the mean rate at "
        "which the messages came. Null: it has no budget, is not behind, or is detached.",
    ),
    ViewColumn("detached_at", TIMESTAMP, "Time since which it is detached; null: it is not."),
)

_LOGS = (
    _QUEUE,
    _SHARD,
    ViewColumn("begin", _LONG, "Offset of the first message that the log still has."),
    ViewColumn("end", _LONG, "Offset that the next message gets."),
    ViewColumn("messages", _LONG, "Messages that the log has."),
    ViewColumn("bytes", _LONG, "Size of them, uncompressed."),
    ViewColumn("oldest_at", TIMESTAMP, "Time at which the first of them came; null: none."),
)

_RETAINED = (
    _QUEUE,
    ViewColumn("kept_by", _TEXT, "`log`, the setting, `subscription`, or `snapshot`."),
    ViewColumn("subscription", _TEXT, "Its name, or that of the snapshot; null: the setting."),
    ViewColumn("bytes", _LONG, "Size of what the log keeps at least for it, uncompressed."),
)

#: The columns of each view, by its name.
COLUMNS = {
    #: One row for each queue.
    "queues": _QUEUES,
    #: One row for each queue, magazine and shard. It counts messages since the queue's creation.
    "shards": _SHARDS,
    #: One row for each slice: where its messages are, and which consumer holds them.
    "slices": _SLICES,
    #: One row for each consumer that the store has seen.
    "consumers": _CONSUMERS,
    #: One row for each message of the sidelines.
    "sideline": _SIDELINE,
    #: One row for each failure; a message can have several.
    "failures": _FAILURES,
    #: One row for each queue, kind and fingerprint of failures with an exception.
    "traces": _TRACES,
    #: One row for each shard in which a transaction of a side task moved messages.
    "reports": _REPORTS,
    #: One row for each shovel that runs as a job; ended jobs are kept for a week. A dropped queue
    #: takes its jobs with it.
    "jobs": _JOBS,
    #: One row for each act of a person that has changed something, kept for 90 days.
    "acts": _ACTS,
    #: One row for each circuit breaker that has opened.
    "breakers": _BREAKERS,
    #: One row for each queue and ten seconds of the last hour, minute of the last day, and hour of
    #: the last 30 days. The side task `sample` writes them.
    "samples": _SAMPLES,
    #: One row for each limit of a queue. Of a limit of values, one row for each value that has
    #: messages in flight, if it counts them, or whose tokens are used.
    "limits": _LIMITS,
    #: One row for each subscription: how far it is behind, and how long that may last. Of one
    #: queue, its own row, or those of the readers of its log.
    "subscriptions": _SUBSCRIPTIONS,
    #: One row for each shard of each queue with a log.
    "logs": _LOGS,
    #: One row for each reason for which a log keeps messages: the largest one decides.
    "retained": _RETAINED,
}

#: The schema of each view, by its name.
VIEWS = {name: _schema(columns) for name, columns in COLUMNS.items()}

SHARDS = VIEWS["shards"]
FAILURES = VIEWS["failures"]
REPORTS = VIEWS["reports"]
#: The part of `REPORTS` that a task writes to its log.
MOVED = _schema(_MOVED)
