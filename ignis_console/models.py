"""The models of the pages: plain values, which the pages show and the API returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ignis_console import messages, sideline, wording
from ignis_console.action_log import LogEntry
from ignis_console.ask import Ask
from ignis_console.console import Console
from ignis_console.details import SPANS, Details
from ignis_console.figures import FigureSample, QueueFigures
from ignis_console.messages import Life
from ignis_console.paging import within
from ignis_console.problems import Problem, of_queue
from ignis_console.shared import Look
from ignis_console.sideline import FailureGroup
from ignis_console.under_way import UnderWay
from ignis_console.values import plain
from queue_core.errors import BadOption

#: How the names of Arrow's types of numbers begin.
_NUMBERS = ("int", "uint", "float", "double", "half", "decimal")
#: Queues on one page, and rows of a group of the sideline.
PER_PAGE = 100
GROUP_ROWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How old the figures are."""

    #: When they were read, by the catalog's clock.
    at: datetime
    #: Seconds since then.
    age: float
    #: Why newer ones could not be read; None: they could.
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """The figures of a queue. Null: it is not known, except for the age: none waits."""

    name: str
    #: ``active``, ``paused`` or ``deactivated``.
    state: str
    waiting: int | None
    oldest_age: float | None
    in_flight: int | None
    sidelined: int | None
    retrying: int | None
    dead: int | None
    damaged: int | None
    shards: int
    concurrency: int
    loaded_per_s: float | None
    fired_per_s: float | None
    deleted_per_s: float | None
    sidelined_per_s: float | None
    problems: int
    samples: tuple[FigureSample, ...] = field(default=(), metadata={"api": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesPage:
    """All queues, or those that a search finds."""

    fresh: Freshness
    now: float
    search: str
    sort: str
    page: int
    pages: int
    found: int
    waiting: int | None
    in_flight: int | None
    sidelined: int | None
    dead: int | None
    queues: tuple[QueueRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage:
    """One queue."""

    fresh: Freshness
    queue: QueueRow
    problems: tuple[Problem, ...]
    details: Details


@dataclass(frozen=True, slots=True, kw_only=True)
class SidelineRow:
    """One message of a group of the sideline."""

    message_id: int
    attempts: int
    deliveries: int
    sidelined_at: Any
    due_at: Any
    dead: bool
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SidelinePage:
    """The sideline of a queue, by kind and first line of the reason; or one of its groups."""

    fresh: Freshness
    queue: str
    messages: int
    all_groups: int
    search: str
    #: The groups that the search finds, and one page of them.
    found: int
    groups: tuple[FailureGroup, ...]
    #: The page, and how many there are: of groups, or of messages of the chosen group.
    page: int
    pages: int
    #: Whether one group is chosen, and which.
    chosen: bool
    kind: str | None
    reason: str | None
    members: int
    rows: tuple[SidelineRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesPage:
    """Messages that wait."""

    queue: str
    selector: str | None
    magazine: str
    count: int
    #: The columns of the queue, and those of them that are numbers.
    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    messages: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """One message with its whole life."""

    queue: str
    life: Life


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemsPage:
    """What a person should look at, the worst first."""

    fresh: Freshness
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """The latest actions by this console."""

    under_way: tuple[UnderWay, ...]
    entries: tuple[LogEntry, ...]


def freshness(look: Look[Any], now: int) -> Freshness:
    """Return how old a reading is; *now*: the catalog's time at it, in microseconds."""
    return Freshness(at=wording.moment(now) or wording.EPOCH, age=look.age, error=look.error)


def _page(ask: Ask) -> int:
    return ask.number("page", 1, 1, 1_000_000)


def _total(queues: list[QueueRow], name: str) -> int | None:
    values = [getattr(queue, name) for queue in queues]
    return None if None in values else sum(values)


def row_of(queue: QueueFigures, oldest_wanted: float, now: float) -> QueueRow:
    """Return the row of a queue; *now*: the moment of its figures, in seconds since 1970."""
    latest = queue.latest(now)
    state = "paused" if queue.is_paused else "active"
    return QueueRow(
        name=queue.name,
        state="deactivated" if queue.deactivated else state,
        waiting=queue.waiting,
        oldest_age=queue.oldest_age,
        in_flight=queue.in_flight,
        sidelined=queue.sidelined,
        retrying=queue.retrying,
        dead=queue.dead,
        damaged=queue.damaged,
        shards=queue.shards,
        concurrency=queue.concurrency,
        loaded_per_s=latest.loaded_per_s if latest else None,
        fired_per_s=latest.fired_per_s if latest else None,
        deleted_per_s=latest.deleted_per_s if latest else None,
        sidelined_per_s=latest.sidelined_per_s if latest else None,
        problems=sum(1 for _ in of_queue(queue, oldest_wanted)),
        samples=queue.samples,
    )


#: The orders of queues. A figure that is not known comes last.
SORTS: dict[str, Callable[[QueueRow], Any]] = {
    "name": lambda row: row.name,
    "waiting": lambda row: (-(row.waiting or 0), row.name),
    "oldest": lambda row: (-(row.oldest_age or 0), row.name),
    "in_flight": lambda row: (-(row.in_flight or 0), row.name),
    "sidelined": lambda row: (-(row.sidelined or 0), row.name),
    "problems": lambda row: (-row.problems, row.name),
}


def queues_page(console: Console, ask: Ask) -> QueuesPage:
    """Return all queues, or those that a search finds."""
    look = console.overview()
    figures = look.seen.figures
    search = ask.text("q") or ""
    sort = ask.one_of("sort", tuple(SORTS))
    rows = [
        row_of(queue, console.options.oldest_wanted, figures.now / 1e6)
        for queue in figures.queues
        if search.lower() in queue.name.lower()
    ]
    rows.sort(key=SORTS[sort])
    page, pages = within(_page(ask), len(rows), PER_PAGE)
    return QueuesPage(
        fresh=freshness(look, figures.now),
        now=figures.now / 1e6,
        search=search,
        sort=sort,
        page=page,
        pages=pages,
        found=len(rows),
        waiting=_total(rows, "waiting"),
        in_flight=_total(rows, "in_flight"),
        sidelined=_total(rows, "sidelined"),
        dead=_total(rows, "dead"),
        queues=tuple(rows[(page - 1) * PER_PAGE : page * PER_PAGE]),
    )


def queue_page(console: Console, ask: Ask) -> QueuePage:
    """Return one queue; raises `NoSuchQueue`."""
    span = ask.one_of("span", tuple(SPANS))
    look = console.queue(ask.queue, span)
    figures, details = look.seen
    wanted = console.options.oldest_wanted
    return QueuePage(
        fresh=freshness(look, round(details.now * 1e6)),
        queue=row_of(figures, wanted, details.now),
        problems=tuple(of_queue(figures, wanted)),
        details=details,
    )


def sideline_page(console: Console, ask: Ask) -> SidelinePage:
    """Return the groups of a sideline, and the messages of one of them."""
    look = console.sideline(ask.queue)
    rows = look.seen.rows
    chosen = ask.flag("group")
    search = ask.text("q") or ""
    groups = sideline.group(rows, search, 1 if chosen else _page(ask))
    kind, reason = ask.text("kind"), ask.values.get("reason") or None
    found = sideline.members(rows, kind, reason) if chosen else rows.slice(0, 0)
    page, pages = groups.page, groups.pages
    if chosen:
        page, pages = within(_page(ask), found.num_rows, GROUP_ROWS)
    names = list(SidelineRow.__dataclass_fields__)
    return SidelinePage(
        fresh=freshness(look, look.seen.now),
        queue=ask.queue,
        messages=groups.messages,
        all_groups=groups.all_groups,
        search=search,
        found=groups.found,
        groups=groups.groups,
        page=page,
        pages=pages,
        chosen=chosen,
        kind=kind,
        reason=reason,
        members=found.num_rows,
        rows=tuple(
            SidelineRow(**{name: row[name] for name in names})
            for row in found.slice((page - 1) * GROUP_ROWS, GROUP_ROWS).to_pylist()
        ),
    )


def messages_page(console: Console, ask: Ask) -> MessagesPage:
    """Return messages that wait; raises `BadSelector`."""
    selector, magazine = ask.text("selector"), ask.one_of("magazine", ("main", "sideline"))
    count = ask.number("count", 20, 1, messages.MOST)
    found = messages.peek(console.store, ask.queue, selector, magazine, count)
    columns = console.store.queue(ask.queue).info.schema
    return MessagesPage(
        queue=ask.queue,
        selector=selector,
        magazine=magazine,
        count=count,
        columns=tuple(columns.names),
        numbers=tuple(each.name for each in columns if str(each.type).startswith(_NUMBERS)),
        messages=tuple(plain(row) for row in found),
    )


def message_page(console: Console, ask: Ask) -> MessagePage:
    """Return one message; raises `BadOutcome` for an id of another queue."""
    text = ask.path["message_id"]
    if not text.isascii() or not text.isdigit() or int(text[:20]) >= 1 << 63:
        raise BadOption(f"message id {text!r}: use a whole number, as in the column _message_id")
    return MessagePage(queue=ask.queue, life=messages.life(console.store, ask.queue, int(text)))


def problems_page(console: Console, _: Ask) -> ProblemsPage:
    """Return the problems of the store."""
    look = console.overview()
    return ProblemsPage(
        fresh=freshness(look, look.seen.figures.now), problems=tuple(look.seen.problems)
    )


def log_page(console: Console, _: Ask) -> LogPage:
    """Return the latest actions."""
    running = console.long_actions.latest()
    return LogPage(under_way=running, entries=tuple(console.log.latest()))
