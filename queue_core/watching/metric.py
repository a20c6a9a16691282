"""The metrics: their names after the conventions of Prometheus and OpenTelemetry, and labels.

Labels have values from closed sets: names of queues, of consumers that hold messages, of breakers,
of side tasks, and of damaged files, kinds of failures and of problems, states of jobs, and limits.
Nothing in a message becomes a label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MESSAGES, SECONDS, BYTES, RATIO, PLAIN = "messages", "seconds", "bytes", "ratio", ""

#: The attributes of OpenTelemetry that correspond to labels of Prometheus.
ATTRIBUTES = {
    "queue": "messaging.destination.name",
    "consumer": "messaging.consumer.group.name",
    "magazine": "ignis.magazine",
    "breaker": "ignis.breaker",
    "task": "ignis.task",
    "file": "ignis.file",
    "kind": "error.type",
    "state": "ignis.state",
    "outcome": "ignis.outcome",
    "le": "le",
    "limit": "ignis.limit",
    "place": "ignis.place",
    "version": "ignis.version",
    "database": "db.system.name",
}


class Metric(NamedTuple):
    """One metric."""

    #: Its name in Prometheus, without the suffix of counters.
    prometheus: str
    #: Its name in OpenTelemetry.
    opentelemetry: str
    unit: str
    about: str
    #: By default, each queue has one.
    labels: tuple[str, ...] = ("queue",)
    #: Whether it only grows.
    counts: bool = False


#: All metrics, in the order of a scrape.
METRICS: list[Metric] = []


def _metric(*of: Any, **more: Any) -> Metric:
    METRICS.append(Metric(*of, **more))
    return METRICS[-1]


def _of_queue(name: str, about: str) -> Metric:
    return _metric(f"ignis_{name}_messages", f"ignis.queue.{name}", MESSAGES, about)


def _counter(name: str, about: str) -> Metric:
    labels = ("queue", "magazine")
    return _metric(
        f"ignis_{name}_messages", f"ignis.messages.{name}", MESSAGES, about, labels, True
    )


#: Present numbers of messages, by the name of the figure.
DEPTHS = {
    "waiting": _of_queue("waiting", "Messages that wait in main."),
    "in_flight": _of_queue("in_flight", "Messages that were fired and are not settled."),
    "sidelined": _metric(
        "ignis_sideline_messages",
        "ignis.queue.sidelined",
        MESSAGES,
        "Messages that wait in the sideline.",
    ),
    "retrying": _of_queue("retrying", "Messages of the sideline that return to main at a time."),
    "dead": _of_queue("dead", "Messages of the sideline that are not tried again."),
}
#: How far a subscription is behind, by the name of the figure.
BEHIND = {
    unit: _metric(
        f"ignis_subscription_behind_{unit}",
        f"ignis.subscription.behind.{'age' if unit == SECONDS else unit}",
        unit,
        about,
    )
    for unit, about in {
        MESSAGES: "Messages that a subscription has not handed out, in the log or in main.",
        SECONDS: "Time since the first of them was loaded or came back; absent: there are none.",
        BYTES: "Bytes of these messages, uncompressed.",
    }.items()
}
HEADROOM = _metric(
    "ignis_subscription_headroom_seconds",
    "ignis.subscription.headroom",
    SECONDS,
    "Time until the budget `late` ends; absent: it has none, is not behind, or is detached.",
)
DETACHED = _metric(
    "ignis_subscription_detached",
    "ignis.subscription.detached",
    PLAIN,
    "1 while a subscription is detached, and so gets nothing more from its log.",
)
DAMAGED = _metric(
    "ignis_damaged_messages",
    "ignis.queue.damaged",
    MESSAGES,
    "Messages that cannot be read, by the segment file to restore; absent: there are none.",
    ("queue", "file"),
)
OLDEST_AGE = _metric(
    "ignis_oldest_message_age_seconds",
    "ignis.queue.oldest_age",
    SECONDS,
    "Time since the oldest message at the head of a shard was loaded; absent: none waits.",
)
LONGEST_WAIT = _metric(
    "ignis_longest_wait_seconds",
    "ignis.queue.longest_wait",
    SECONDS,
    "Time since such a message came into main, new or from the sideline; absent: none waits.",
)
STUCK = _of_queue("stuck", "Messages in flight for longer than the setting `sweep_after`.")
PAUSED = _metric(
    "ignis_queue_paused",
    "ignis.queue.paused",
    PLAIN,
    "1 while the queue is paused, by a person or by the concurrency 0.",
)
QUEUE_BYTES = _metric(
    "ignis_queue_bytes",
    "ignis.queue.bytes",
    BYTES,
    "Bytes of all messages, uncompressed; absent: there are none.",
    ("queue", "magazine"),
)
MAX_MESSAGES = _metric(
    "ignis_queue_max_messages",
    "ignis.queue.max",
    MESSAGES,
    "The setting `max_size`; absent: it has none.",
)
FILL = _metric(
    "ignis_queue_fill_ratio",
    "ignis.queue.fill",
    RATIO,
    "Used part of `max_size` or `max_bytes`, the larger of both; absent: a ring, or no bound.",
)
LIMIT_MESSAGES = _metric(
    "ignis_limit_available_messages",
    "ignis.limit.available",
    MESSAGES,
    "Messages that a limit of the whole queue allows to be fired now.",
    ("queue", "limit"),
)
CONSUMERS = _metric(
    "ignis_consumers",
    "ignis.consumer.count",
    PLAIN,
    "Consumers with a heartbeat that are registered with the queue, or hold its messages.",
)
FAILURES = _metric(
    "ignis_failures",
    "ignis.failures",
    PLAIN,
    "Failures of messages, by kind.",
    ("queue", "kind"),
    True,
)
JOBS = _metric(
    "ignis_jobs",
    "ignis.job.count",
    PLAIN,
    "Jobs that move messages from the sideline, by state; ended ones are forgotten after a week.",
    ("queue", "state"),
)
#: Counters of each magazine since the queue's creation, by their names.
COUNTERS = {
    "loaded": _counter("loaded", "Messages that came in, without those that returned to main."),
    "returned": _counter("returned", "Messages of the sideline that returned to main."),
    "fired": _counter("fired", "Messages that were fired or left, by any verb."),
    "reloaded": _counter("reloaded", "Fired messages that wait again."),
    "deleted": _counter("deleted", "Messages that were finished."),
    "sidelined": _counter("sidelined", "Messages that failed, were put off or moved by a person."),
    "shovelled": _counter("shovelled", "Messages that left the sideline to be tried again."),
    "swept": _counter("swept", "Messages that were stuck, or fired too often."),
    "expired": _counter("expired", "Messages that were too old."),
    "ignored": _counter("ignored", "Messages that a load left out."),
    "replaced": _counter("replaced", "Messages that a policy removed."),
    "dropped": _counter("dropped", "Messages that a ring, seek or failed rendezvous dropped."),
}
#: Counters of main that each queue has from the beginning, so that a rate sees the first message.
#: The others have a series once they were above 0.
ALWAYS = ("loaded", "fired", "deleted", "sidelined")
HELD = _metric(
    "ignis_consumer_in_flight_messages",
    "ignis.consumer.in_flight",
    MESSAGES,
    "Messages that a consumer holds.",
    ("consumer",),
)
HEARTBEAT_AGE = _metric(
    "ignis_consumer_heartbeat_age_seconds",
    "ignis.consumer.heartbeat_age",
    SECONDS,
    "Time since the last heartbeat of a consumer that holds messages.",
    ("consumer",),
)
OPEN_BREAKERS = _metric(
    "ignis_open_breakers",
    "ignis.breaker.open",
    PLAIN,
    "1 while the breaker lets no messages be fired.",
    ("breaker",),
)
PROBLEMS = _metric(
    "ignis_problems",
    "ignis.problems",
    PLAIN,
    "Problems as `ignis problems` lists them, by kind; the queue is empty for those of the store.",
    ("queue", "kind"),
)
TASK_AGE = _metric(
    "ignis_side_task_age_seconds",
    "ignis.task.age",
    SECONDS,
    "Time since a side task last began, in any process and for any queue.",
    ("task",),
)
#: Of `Measured` messages: how long they took, by bucket.
WAITING_SECONDS = _metric(
    "ignis_waiting_seconds",
    "ignis.waiting",
    SECONDS,
    "Time from a message's coming into main, new or from the sideline, to its firing.",
)
HANDLING_SECONDS = _metric(
    "ignis_handling_seconds",
    "ignis.handling",
    SECONDS,
    "Time of the handler's call for a message, by its outcome.",
    ("queue", "outcome"),
)
HISTOGRAMS = (WAITING_SECONDS, HANDLING_SECONDS)
FREE_BYTES = _metric(
    "ignis_disk_free_bytes",
    "ignis.disk.free",
    BYTES,
    "Free bytes on the disk of the catalog or the storage of this machine; absent: a server.",
    ("place",),
)
DISK_BYTES = _metric(
    "ignis_disk_size_bytes",
    "ignis.disk.size",
    BYTES,
    "Size of that disk.",
    ("place",),
)
BUILD = _metric(
    "ignis_build_info",
    "ignis.build",
    PLAIN,
    "Always 1: the version of ignis that answers, and the database of the catalog.",
    ("version", "database"),
)
