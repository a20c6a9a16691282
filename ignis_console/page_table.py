"""A page: its path, its parameters, and the function that returns its model.

A model is a plain value, which the page shows and its twin in the API returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, get_type_hints

from ignis_console.ask import Ask, Parameter
from ignis_console.console import Console
from ignis_console.openapi import Operation
from ignis_console.shared import Look
from queue_core.watching import wording


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


#: All pages; `ignis_console.pages` imports the modules that add them.
PAGES: list[Page] = []

_Model = Callable[[Console, Ask], Any]


def page_at(path: str, about: str, *parameters: Parameter) -> Callable[[_Model], _Model]:
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


def number_of(ask: Ask) -> int:
    """Return the number of the page of a list that is asked for, from 1."""
    return ask.number("page", 1, 1, 1_000_000)
