"""The table of pages: each with its path, its model, and its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from ignis_console import models
from ignis_console.ask import GROUP, Ask, Parameter
from ignis_console.console import Console
from ignis_console.openapi import Operation


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


PAGES = (
    Page(
        "/",
        "All queues with their figures, 100 per page.",
        models.queues_page,
        (
            Parameter("q", "Only queues whose name has this text."),
            Parameter("sort", f"The order: {', '.join(models.SORTS)}."),
            Parameter("page", "The number of the page, from 1.", kind="number"),
        ),
    ),
    Page(
        "/queues/{queue}",
        "One queue: its figures, shards, consumers and history.",
        models.queue_page,
        (Parameter("span", "The time of the history: hour, day or month."),),
    ),
    Page(
        "/queues/{queue}/sideline",
        "The sideline of a queue, grouped by kind and first line of the reason, 100 per page.",
        models.sideline_page,
        (
            Parameter("q", "Only groups with this text in their kind or reason."),
            Parameter(
                "page", "The number of the page of groups or messages, from 1.", kind="number"
            ),
            Parameter("group", "1: show messages of the group of *kind* and *reason*."),
            *GROUP[1:],
        ),
    ),
    Page(
        "/queues/{queue}/messages",
        "Messages that wait, without taking them.",
        models.messages_page,
        (
            Parameter("selector", "A SQL condition on the messages."),
            Parameter("magazine", "main or sideline."),
            Parameter("count", "The most messages: 1 to 200.", kind="number"),
        ),
    ),
    Page(
        "/queues/{queue}/messages/{message_id}",
        "One message: where it is, what it contains, and its failures.",
        models.message_page,
    ),
    Page("/problems", "What a person should look at, the worst first.", models.problems_page),
    Page("/log", "The latest actions by this console.", models.log_page),
)
