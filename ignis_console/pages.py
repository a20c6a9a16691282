"""The table of pages: each with its twin in the API, its model, and its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ignis_console import models
from ignis_console.ask import Ask
from ignis_console.console import Console
from ignis_console.openapi import Operation, Parameter


class Page(NamedTuple):
    """A page that changes nothing."""

    path: str
    api: str
    #: Its template, and the name of its operation.
    name: str
    about: str
    model: Callable[[Console, Ask], Any]
    answer: type
    parameters: tuple[Parameter, ...] = ()

    @property
    def operation(self) -> Operation:
        """Its twin in the API."""
        return Operation("get", self.api, self.name, self.about, self.answer, self.parameters)


_SORTS = ", ".join(models.SORTS)

PAGES = (
    Page(
        "/",
        "/api/queues",
        "queues",
        "All queues with their figures, 100 per page.",
        models.queues_page,
        models.QueuesPage,
        (
            Parameter("q", "Only queues whose name has this text."),
            Parameter("sort", f"The order: {_SORTS}."),
            Parameter("page", "The number of the page, from 1.", int),
        ),
    ),
    Page(
        "/queues/{queue}",
        "/api/queues/{queue}",
        "queue",
        "One queue: its figures, shards, consumers and history.",
        models.queue_page,
        models.QueuePage,
        (Parameter("span", "The time of the history: hour, day or month."),),
    ),
    Page(
        "/queues/{queue}/sideline",
        "/api/queues/{queue}/sideline",
        "sideline",
        "The sideline of a queue, grouped by kind and first line of the reason, 100 per page.",
        models.sideline_page,
        models.SidelinePage,
        (
            Parameter("q", "Only groups with this text in their kind or reason."),
            Parameter("page", "The number of the page of groups or messages, from 1.", int),
            Parameter("group", "1: show messages of the group of *kind* and *reason*."),
            Parameter("kind", "The kind of the failures; empty: none."),
            Parameter("reason", "The first line of the reason; empty: none."),
        ),
    ),
    Page(
        "/queues/{queue}/messages",
        "/api/queues/{queue}/messages",
        "messages",
        "Messages that wait, without taking them.",
        models.messages_page,
        models.MessagesPage,
        (
            Parameter("selector", "A SQL condition on the messages."),
            Parameter("magazine", "main or sideline."),
            Parameter("count", "The most messages: 1 to 200.", int),
        ),
    ),
    Page(
        "/queues/{queue}/messages/{message_id}",
        "/api/queues/{queue}/messages/{message_id}",
        "message",
        "One message: where it is, what it contains, and its failures.",
        models.message_page,
        models.MessagePage,
    ),
    Page(
        "/problems",
        "/api/problems",
        "problems",
        "What a person should look at, the worst first.",
        models.problems_page,
        models.ProblemsPage,
    ),
    Page(
        "/log",
        "/api/log",
        "log",
        "The latest actions by this console.",
        models.log_page,
        models.LogPage,
    ),
)
