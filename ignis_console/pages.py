"""The table of pages: each with its path, its parameters, and the function that returns its model.

A model is a plain value, which the page shows and its twin in the API returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from ignis_console import messages, sideline
from ignis_console.action_log import KEPT, LogEntry
from ignis_console.ask import GROUP, Ask, Parameter
from ignis_console.console import Console
from ignis_console.details import SPANS, Details
from ignis_console.facets import Sample
from ignis_console.messages import Life
from ignis_console.openapi import Operation
from ignis_console.redrives import Redrive
from ignis_console.shared import Look
from ignis_console.sideline import Groups, KeptTrace, LiteralReason, within
from queue_core.catalog.records import acts
from queue_core.errors import BadOption, IgnisError
from queue_core.values.json_text import as_json
from queue_core.values.valid_text import valid_table
from queue_core.watching import wording
from queue_core.watching.present import QueueFigures
from queue_core.watching.problem_kinds import Problem, ProblemGroup, Severity
from queue_core.watching.problems import of_queue, why

#: How the names of Arrow's types of numbers begin.
_NUMBERS = ("int", "uint", "float", "double", "half", "decimal")
#: Queues on one page, and rows of a group of the sideline.
PER_PAGE = 100
GROUP_ROWS = 100
#: Problems of each kind on the page of all kinds.
GROUP_PROBLEMS = 20
#: The most messages that one page shows.
MOST_MESSAGES = 200


class Page(NamedTuple):
    """A page that changes nothing, and its twin in the API, which returns the same model."""

    path: str
    about: str
    model: Callable[[Console, Ask], Any]
    parameters: tuple[Parameter, ...] = ()

    @property
    def name(self) -> str:
        """The name of its template and of its operation."""
        return self.model.__name__.removesuffix("_page")

    @property
    def api(self) -> str:
        """The path of its twin."""
        return "/api/queues" if self.path == "/" else f"/api{self.path}"

    @property
    def operation(self) -> Operation:
        """Its twin in the API."""
        answer = get_type_hints(self.model)["return"]
        return Operation("get", self.api, self.name, self.about, answer, self.parameters)


PAGES: list[Page] = []
_Model = Callable[[Console, Ask], Any]


def _page(path: str, about: str, *parameters: Parameter) -> Callable[[_Model], _Model]:
    """Add the page of a function that returns its model."""

    def add(model: _Model) -> _Model:
        PAGES.append(Page(path, about, model, parameters))
        return model

    return add


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How old the figures are."""

    #: When they were read, by the catalog's clock.
    at: datetime
    #: Seconds since then.
    age: float
    #: Why newer ones could not be read; None: they could.
    error: str | None


def freshness(look: Look[Any], now: int) -> Freshness:
    """Return how old a reading is; *now*: the catalog's time at it, in microseconds."""
    return Freshness(at=wording.moment(now) or wording.EPOCH, age=look.age, error=look.error)


@dataclass(frozen=True, kw_only=True)
class QueueRow(QueueFigures):
    """The figures of a queue. Null: it is not known, except for the age: none waits."""

    problems: int
    #: That of the worst problem.
    severity: Severity | None


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


#: The orders of queues. A figure that is not known comes last.
SORTS: dict[str, Callable[[QueueRow], Any]] = {
    "name": lambda row: row.name,
    "waiting": lambda row: (-(row.waiting or 0), row.name),
    "oldest": lambda row: (-(row.oldest_age or 0), row.name),
    "in_flight": lambda row: (-(row.in_flight or 0), row.name),
    "sidelined": lambda row: (-(row.sidelined or 0), row.name),
    "problems": lambda row: (
        list(Severity).index(row.severity) if row.severity else len(Severity),
        -(row.waiting or 0),
        row.name,
    ),
}


@_page(
    "/",
    "All queues with their figures, 100 per page.",
    Parameter("q", "Only queues whose name has this text."),
    Parameter("sort", f"The order: {', '.join(SORTS)}."),
    Parameter("page", "The number of the page, from 1.", kind="number"),
)
def queues_page(console: Console, ask: Ask) -> QueuesPage:
    """Return all queues, or those that a search finds."""
    look = console.overview()
    figures = look.seen.figures
    search = ask.text("q") or ""
    sort = ask.one_of("sort", tuple(SORTS))
    rows = [
        _row(console, queue) for queue in figures.queues if search.lower() in queue.name.lower()
    ]
    rows.sort(key=SORTS[sort])
    page, pages = within(_number(ask), len(rows), PER_PAGE)
    totals = {
        name: None if None in (values := [getattr(row, name) for row in rows]) else sum(values)
        for name in ("waiting", "in_flight", "sidelined", "dead")
    }
    return QueuesPage(
        fresh=freshness(look, figures.now),
        now=figures.now / 1e6,
        search=search,
        sort=sort,
        page=page,
        pages=pages,
        found=len(rows),
        **totals,
        queues=tuple(rows[(page - 1) * PER_PAGE : page * PER_PAGE]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage:
    """One queue."""

    fresh: Freshness
    queue: QueueRow
    #: Why its messages are not handled, or not fast enough; the weightiest reason first.
    why: tuple[Problem, ...]
    problems: tuple[Problem, ...]
    details: Details


@_page(
    "/queues/{queue}",
    "One queue: its figures, shards, consumers and history.",
    Parameter("span", "The time of the history: hour, day or month."),
)
def queue_page(console: Console, ask: Ask) -> QueuePage:
    """Return one queue; raises `NoSuchQueue`."""
    look = console.queue(ask.queue, ask.one_of("span", tuple(SPANS)))
    details, wanted = look.seen, console.options.oldest_wanted
    return QueuePage(
        fresh=freshness(look, round(details.now * 1e6)),
        queue=_row(console, details.figures),
        why=tuple(why(details.figures, details.blocked)),
        problems=tuple(of_queue(details.figures, wanted)),
        details=details,
    )


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


@dataclass(frozen=True, kw_only=True)
class SidelinePage(Groups):
    """The sideline of a queue, by kind and fingerprint; or one of its groups."""

    fresh: Freshness
    queue: str
    search: str
    #: Whether one group is chosen, and which. Then the pages are those of its messages.
    chosen: bool
    kind: str | None
    fingerprint: str | None
    #: Only messages with this first line of the reason; null: all of the group.
    reason: str | None
    #: Of a group: how many first lines there are, and those of the most messages.
    all_reasons: int
    reasons: tuple[LiteralReason, ...]
    #: Of a group: the trace of one of its failures; null: none had an exception, or it is gone.
    trace: KeptTrace | None
    members: int
    rows: tuple[SidelineRow, ...]
    #: What the messages of the chosen group have in them; null: none is chosen.
    sample: Sample | None


@_page(
    "/queues/{queue}/sideline",
    "The sideline of a queue, grouped by kind and fingerprint of the failures, 100 per page.",
    Parameter("q", "Only groups with this text in their kind or reason."),
    Parameter("page", "The number of the page of groups or messages, from 1.", kind="number"),
    Parameter("group", "1: show messages of the group of *kind* and *fingerprint*."),
    *GROUP[1:],
)
def sideline_page(console: Console, ask: Ask) -> SidelinePage:
    """Return the groups of a sideline, and the messages of one of them."""
    look = console.sideline(ask.queue)
    now, rows, traces = look.seen
    chosen, search = ask.flag("group"), ask.text("q") or ""
    groups = vars(sideline.group(rows, search, 1 if chosen else _number(ask)))
    kind, fingerprint, reason = ask.group
    found = sideline.members(rows, *ask.group) if chosen else rows.slice(0, 0)
    reasons = sideline.reasons(found)
    page = 1
    if chosen:
        page, pages = within(_number(ask), found.num_rows, GROUP_ROWS)
        groups |= {"page": page, "pages": pages}
    names = list(SidelineRow.__dataclass_fields__)
    shown = found.select(names).slice((page - 1) * GROUP_ROWS, GROUP_ROWS)
    sample = None
    if chosen:
        members, here = (each.column("message_id").to_numpy() for each in (found, shown))
        sample = console.sample(ask.queue, (*ask.group, page), np.sort(members), here)
    return SidelinePage(
        **groups,
        fresh=freshness(look, now),
        queue=ask.queue,
        search=search,
        chosen=chosen,
        kind=kind,
        fingerprint=fingerprint,
        reason=reason,
        all_reasons=len(reasons),
        reasons=reasons[: sideline.MOST_REASONS],
        trace=sideline.trace_of(traces, kind, fingerprint) if chosen else None,
        members=found.num_rows,
        rows=tuple(SidelineRow(**row) for row in shown.to_pylist()),
        sample=sample,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesPage:
    """Messages that wait, or that are in flight."""

    queue: str
    selector: str | None
    magazine: str
    #: ``waiting``, or ``in flight``: then those of both magazines, with their ``_consumer``.
    state: str
    consumer: str | None
    count: int
    #: The columns of the queue, and those of them that are numbers.
    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    messages: tuple[dict[str, Any], ...]


@_page(
    "/queues/{queue}/messages",
    "Messages that wait or are in flight, without taking them.",
    Parameter("selector", "A SQL condition on the messages."),
    Parameter("magazine", "main or sideline, of messages that wait."),
    Parameter("state", "waiting or in flight."),
    Parameter("consumer", "Only messages in flight that this consumer holds."),
    Parameter("count", "The most messages: 1 to 200.", kind="number"),
)
def messages_page(console: Console, ask: Ask) -> MessagesPage:
    """Return messages that wait or are in flight; raises `BadSelector`."""
    selector, magazine = ask.text("selector"), ask.one_of("magazine", ("main", "sideline"))
    count = ask.number("count", 20, 1, MOST_MESSAGES)
    queue = console.store.queue(ask.queue)
    state, consumer = ask.one_of("state", ("waiting", "in flight")), ask.text("consumer")
    if state == "waiting":
        found = queue.peek(count, selector=selector, magazine=magazine)
    else:
        found = messages.in_flight(queue, count, selector, consumer)
    return MessagesPage(
        queue=ask.queue,
        selector=selector,
        magazine=magazine,
        state=state,
        consumer=consumer,
        count=count,
        columns=tuple(queue.schema.names),
        numbers=tuple(each.name for each in queue.schema if str(each.type).startswith(_NUMBERS)),
        messages=tuple(json.loads(as_json(valid_table(found).to_pylist()))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """One message with its whole life."""

    queue: str
    life: Life


@_page(
    "/queues/{queue}/messages/{message_id}",
    "One message: where it is, what it contains, and its failures.",
)
def message_page(console: Console, ask: Ask) -> MessagePage:
    """Return one message; raises `BadOutcome` for an id of another queue."""
    text = ask.path["message_id"]
    if not text.isascii() or not text.isdigit() or int(text[:20]) >= 1 << 63:
        raise BadOption(f"message id {text!r}: use a whole number, as in the column _message_id")
    return MessagePage(queue=ask.queue, life=messages.life(console.store, ask.queue, int(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemsPage:
    """What a person should look at by kind, the worst first."""

    fresh: Freshness
    #: The chosen kind; null: all, with the first problems of each.
    kind: str | None
    page: int
    pages: int
    groups: tuple[ProblemGroup, ...]


@_page(
    "/problems",
    "What a person should look at by kind, the worst first; the first 20 of each kind.",
    Parameter("kind", "Only this kind, 100 per page."),
    Parameter("page", "The number of the page of a kind, from 1.", kind="number"),
)
def problems_page(console: Console, ask: Ask) -> ProblemsPage:
    """Return the problems of the store."""
    look, kind = console.overview(), ask.text("kind")
    groups = [each for each in look.seen.groups if kind in (None, each.kind)]
    most, page, pages = GROUP_PROBLEMS, 1, 1
    if kind is not None:
        most = PER_PAGE
        page, pages = within(_number(ask), sum(each.count for each in groups), most)
    part = slice((page - 1) * most, page * most)
    return ProblemsPage(
        fresh=freshness(look, look.seen.figures.now),
        kind=kind,
        page=page,
        pages=pages,
        groups=tuple(replace(each, problems=each.problems[part]) for each in groups),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivesPage:
    """The redrives of the last week that go on as jobs."""

    fresh: Freshness
    redrives: tuple[Redrive, ...]


@_page("/redrives", "Redrives as jobs: those that go on, and the latest ones of the last week.")
def redrives_page(console: Console, _: Ask) -> RedrivesPage:
    """Return the redrives of the store."""
    look = console.redrives()
    now, found = look.seen
    return RedrivesPage(fresh=freshness(look, now), redrives=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """The latest acts of persons, by any way."""

    queue: str | None
    #: The actions of this console that have not ended.
    under_way: tuple[LogEntry, ...]
    entries: tuple[LogEntry, ...]


@_page(
    "/log",
    "The latest acts of persons: with a console, the command line or Python.",
    Parameter("queue", "Only acts on this queue, which may be dropped."),
)
def log_page(console: Console, ask: Ask) -> LogPage:
    """Return the latest acts, and actions of this console that have changed nothing."""
    queue = ask.text("queue")
    own = [*console.log.running(), *console.log.latest()]
    found: Sequence[Any] = ()
    # Its own actions say what went wrong, also while the store cannot be reached.
    with suppress(IgnisError), console.store.catalog.read() as connection:
        found = acts.rows(connection, None if queue is None else [queue], KEPT)
    entries = {row.id: _entry(row) for row in found}
    entries |= {each.id: each for each in own if queue in (None, each.queue)}
    under_way = tuple(entries.pop(each.id) for each in console.log.running() if each.id in entries)
    latest = sorted(entries.values(), key=lambda each: each.at, reverse=True)
    return LogPage(queue=queue, under_way=under_way, entries=tuple(latest[:KEPT]))


def _entry(act: Any) -> LogEntry:
    """Return an act as an entry of the log."""
    chosen = {name: str(value) for name, value in acts.chosen_of(act).items()}
    if act.selector is not None:
        chosen["selector"] = act.selector
    return LogEntry(
        at=(wording.moment(act.begun_at) or wording.EPOCH).isoformat(),
        who=act.who,
        address=act.host,
        by=act.by,
        action=act.verb,
        queue=act.queue or "",
        job=chosen.pop("job", None),
        chosen=chosen,
        messages=act.messages,
        error=act.error,
        ended=act.ended_at is not None,
        id=act.id,
    )


def _number(ask: Ask) -> int:
    """Return the page of a list that is asked for."""
    return ask.number("page", 1, 1, 1_000_000)


def _row(console: Console, queue: QueueFigures) -> QueueRow:
    found = of_queue(queue, console.options.oldest_wanted)
    worst = found[0].severity if found else None
    return QueueRow(**vars(queue), problems=len(found), severity=worst)
