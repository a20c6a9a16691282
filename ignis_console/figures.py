"""The figures of a store at one moment, as plain values. None: it is not known."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Seconds after which the rates of a sample are not shown as present ones: six samples are missing.
LATEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FigureSample:
    """The figures of a queue at one moment of the past. Times are seconds since 1970."""

    taken_at: float
    waiting: int | None
    #: Seconds.
    oldest_age: float | None
    in_flight: int | None
    sidelined: int | None
    loaded_per_s: float | None
    fired_per_s: float | None
    deleted_per_s: float | None
    sidelined_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """The figures of one queue."""

    id: int
    name: str
    waiting: int | None
    #: Seconds since the oldest message was loaded; None: none waits, or it is not known.
    oldest_age: float | None
    in_flight: int | None
    sidelined: int | None
    retrying: int | None
    dead: int | None
    damaged: int | None
    shards: int
    concurrency: int
    #: The bound of messages in main; None: none, or it is not known.
    max_size: int | None
    overflow: str
    #: Seconds since a person paused it.
    paused_for: float | None
    deactivated: bool
    #: Whether each failed message has a time at which it returns.
    retries: bool
    #: Seconds since the first message of the sideline was due to return; None: none is late.
    overdue_for: float | None
    #: Without retries: seconds since the task `shovel` last began for it; None: never.
    shovelled_before: float | None
    #: Without retries: seconds between two of its runs; None: it does not run by itself.
    shovel_interval: float | None
    #: Messages in flight for longer than the setting ``sweep_after``, and the age of their first
    #: firing in seconds.
    stuck: int = 0
    stuck_for: float | None = None
    samples: tuple[FigureSample, ...] = ()

    @property
    def is_paused(self) -> bool:
        """Whether it fires nothing, by a person or by its concurrency."""
        return self.paused_for is not None or self.concurrency == 0

    def latest(self, now: float) -> FigureSample | None:
        """Return the newest sample; None if it tells nothing of the present, *now*."""
        newest = self.samples[-1] if self.samples else None
        return newest if newest is not None and now - newest.taken_at <= LATEST_SECONDS else None


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer that holds messages, of one queue or of all."""

    name: str
    held: int
    #: Seconds since its first firing that is not settled.
    held_for: float | None
    #: Seconds since its last heartbeat; None: it sends none.
    silent_for: float | None


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """A breaker that lets no messages be fired."""

    name: str
    value: str
    state: str
    #: Seconds.
    since: float


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A shovel that ran as a job and failed."""

    job: str
    queue: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a store at one moment, from one state of the catalog."""

    #: The catalog's time, in microseconds since 1970.
    now: int
    queues: tuple[QueueFigures, ...]
    holders: tuple[Holder, ...] = ()
    breakers: tuple[OpenBreaker, ...] = ()
    failed_jobs: tuple[FailedJob, ...] = ()
    #: Seconds since each side task last began, in any process.
    tasks: dict[str, float] = field(default_factory=dict)
