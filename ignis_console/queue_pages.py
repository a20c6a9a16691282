"""The pages of one queue, with its sideline and its messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ignis_console import messages, sideline
from ignis_console.ask import GROUP, Ask, Parameter
from ignis_console.console import Console
from ignis_console.details import SPANS, Details
from ignis_console.facets import Sample
from ignis_console.messages import Life
from ignis_console.page_table import Freshness, freshness, number_of, page_at
from ignis_console.sideline import PER_PAGE, Groups, KeptTrace, LiteralReason, within
from queue_core.errors import BadOption
from queue_core.values.arrow_types import is_number
from queue_core.values.json_text import as_json
from queue_core.values.valid_text import readable
from queue_core.watching.present import QueueFigures
from queue_core.watching.problem_kinds import Problem, Severity
from queue_core.watching.problems import of_queue, why

#: The most messages that one page shows.
MOST_MESSAGES = 200


@dataclass(frozen=True, kw_only=True)
class QueueRow(QueueFigures):
    """The figures of a queue. Null: it is not known, except for the age: none waits."""

    problems: int
    #: That of the worst problem.
    severity: Severity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage:
    """One queue."""

    fresh: Freshness
    queue: QueueRow
    #: Why its messages are not handled, or not fast enough; the weightiest reason first.
    why: tuple[Problem, ...]
    problems: tuple[Problem, ...]
    details: Details


@page_at(
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
        queue=row_of(console, details.figures),
        why=tuple(why(details.figures, details.blocked, details.spaces)),
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


@page_at(
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
    groups = vars(sideline.group(rows, search, 1 if chosen else number_of(ask)))
    kind, fingerprint, reason = ask.group
    found = sideline.members(rows, *ask.group) if chosen else rows.slice(0, 0)
    reasons = sideline.reasons(found)
    page = 1
    if chosen:
        page, pages = within(number_of(ask), found.num_rows)
        groups |= {"page": page, "pages": pages}
    names = list(SidelineRow.__dataclass_fields__)
    shown = found.select(names).slice((page - 1) * PER_PAGE, PER_PAGE)
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


@page_at(
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
        numbers=tuple(each.name for each in queue.schema if is_number(each.type)),
        messages=tuple(json.loads(as_json(readable(found).to_pylist()))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """One message with its whole life."""

    queue: str
    life: Life


@page_at(
    "/queues/{queue}/messages/{message_id}",
    "One message: where it is, what it contains, and its failures.",
)
def message_page(console: Console, ask: Ask) -> MessagePage:
    """Return one message; raises `BadOutcome` for an id of another queue."""
    text = ask.path["message_id"]
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) >= 1 << 63:
        raise BadOption(f"message id {text!r}: use a whole number, as in the column _message_id")
    return MessagePage(queue=ask.queue, life=messages.life(console.store, ask.queue, int(text)))


def row_of(console: Console, queue: QueueFigures) -> QueueRow:
    """Return the figures of a queue with its problems."""
    found = of_queue(queue, console.options.oldest_wanted)
    worst = found[0].severity if found else None
    return QueueRow(**vars(queue), problems=len(found), severity=worst)
