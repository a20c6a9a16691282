"""The pages of the store: its queues, problems, redrives and log; and the list of all pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ignis_console.action_log import KEPT, LogEntry
from ignis_console.ask import Ask, Parameter
from ignis_console.console import Console
from ignis_console.page_table import PAGES as PAGES
from ignis_console.page_table import Freshness, freshness, number_of, page_at
from ignis_console.queue_pages import QueueRow, row_of
from ignis_console.redrives import Redrive
from ignis_console.sideline import PER_PAGE, within
from queue_core.catalog.records import acts
from queue_core.errors import IgnisError
from queue_core.watching import wording
from queue_core.watching.problem_kinds import ProblemGroup, Severity

#: Problems of each kind on the page of all kinds.
GROUP_PROBLEMS = 20


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


@page_at(
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
        row_of(console, queue) for queue in figures.queues if search.lower() in queue.name.lower()
    ]
    rows.sort(key=SORTS[sort])
    page, pages = within(number_of(ask), len(rows))
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
class ProblemsPage:
    """What a person should look at by kind, the worst first."""

    fresh: Freshness
    #: The chosen kind; null: all, with the first problems of each.
    kind: str | None
    page: int
    pages: int
    groups: tuple[ProblemGroup, ...]


@page_at(
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
        page, pages = within(number_of(ask), sum(each.count for each in groups))
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


@page_at("/redrives", "Redrives as jobs: those that go on, and the latest ones of the last week.")
def redrives_page(console: Console, _: Ask) -> RedrivesPage:
    """Return the redrives of the store."""
    look = console.redrives()
    now, found = look.seen
    return RedrivesPage(fresh=freshness(look, now), redrives=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """The latest acts of persons, by any way."""

    queue: str | None
    #: Why only actions of this console are shown; null: the log was read.
    error: str | None
    #: The actions of this console that have not ended.
    under_way: tuple[LogEntry, ...]
    entries: tuple[LogEntry, ...]


@page_at(
    "/log",
    "The latest acts of persons: with a console, the command line or Python.",
    Parameter("queue", "Only acts on this queue, which may be dropped."),
)
def log_page(console: Console, ask: Ask) -> LogPage:
    """Return the latest acts, and actions of this console that have changed nothing."""
    queue = ask.text("queue")
    own = [*console.log.running(), *console.log.latest()]
    found: Sequence[Any] = ()
    error: str | None = None
    try:
        with console.store.catalog.read() as connection:
            found = acts.rows(connection, None if queue is None else [queue], KEPT)
    except IgnisError as failure:
        # Its own actions say what went wrong, even while the store cannot be reached.
        error = str(failure)
    entries = {row.id: _entry(row) for row in found}
    verbs = {row.id: row.verb for row in found}
    entries |= {
        # By the name that it has everywhere.
        each.id: replace(each, action=verbs.get(each.id, each.action))
        for each in own
        if queue in (None, each.queue)
    }
    under_way = tuple(entries.pop(each.id) for each in console.log.running() if each.id in entries)
    latest = sorted(entries.values(), key=lambda each: each.at, reverse=True)
    entries_shown = tuple(latest[:KEPT])
    return LogPage(queue=queue, error=error, under_way=under_way, entries=entries_shown)


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
