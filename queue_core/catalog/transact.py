"""Run the transaction of a verb, between its crash points, or its many transactions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any, TypeVar

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import acts, progress
from queue_core.support import faults

Result = TypeVar("Result")
#: Where a round begins.
Place = TypeVar("Place")

#: Called first in a transaction; raises if the transaction must not happen (`Leader.guard`).
Guard = Callable[[Connection], object]


def transact(
    catalog: Catalog,
    verb: str,
    work: Callable[[Connection], Result],
    guard: Guard | None = None,
    *,
    grows: bool = False,
    late: bool = False,
    seconds: float | None = None,
) -> Result:
    """
    Write in one transaction; pass the crash points before and after its commit.

    *grows* and *late* are as in `Catalog.write`. *seconds*: the longest wait for a lock, where
    several write at a time; raises `StillLocked`.
    """

    def guarded(connection: Connection) -> Result:
        if guard is not None:
            guard(connection)
        with dialect.of(connection).waiting(connection, seconds):
            result = work(connection)
        faults.point(f"{verb}.before_commit")
        return result

    result = catalog.write(guarded, grows=grows, late=late)
    faults.point(f"{verb}.committed")
    return result


class Rounds:
    """
    The transactions of a long verb: each is whole in itself, and others can write in between.

    They report their progress.

    Args:
        catalog: The catalog.
        verb: The verb, whose crash points each round passes.
        guard: Called first in each round.
        limit: The most messages of all rounds; None: no limit.
        rate: The most messages per second; None: no limit.
        late: As in `Catalog.write`.
        noted: Whether an act of a person counts their messages.
        seconds: As in `transact`.
    """

    def __init__(
        self,
        catalog: Catalog,
        verb: str,
        guard: Guard | None = None,
        *,
        limit: int | None = None,
        rate: float | None = None,
        late: bool = False,
        noted: bool = True,
        seconds: float | None = None,
    ) -> None:
        self._catalog = catalog
        self._limit = limit
        self._rate = rate
        self._noted = noted
        self._transact: Callable[..., Any] = partial(
            transact, catalog, verb, guard=guard, late=late, seconds=seconds
        )
        self._last: int | None = None
        #: How many messages all rounds have changed.
        self.done = 0

    @property
    def left(self) -> int | None:
        """How many messages the limit leaves; None: there is no limit."""
        return None if self._limit is None else self._limit - self.done

    def run(self, work: Callable[[Connection], tuple[int, Result]]) -> tuple[int, Result]:
        """Do one round, which returns how many messages it changes, and something else."""
        if self._last is not None:
            self._catalog.give_way()
            if self._rate is not None:
                sleep(self._last / self._rate)

        def noted(connection: Connection) -> tuple[int, Result]:
            count, result = work(connection)
            if self._noted:
                acts.note(connection, count)
            return count, result

        count, result = self._transact(noted)
        self._last = count
        self.done += count
        progress.add(count)
        return count, result

    def step(self, work: Callable[[Connection], int]) -> int:
        """Do one round, which returns how many messages it changes."""
        return self.run(lambda connection: (work(connection), None))[0]

    def repeat(self, work: Callable[[Connection], int]) -> int:
        """Do rounds until one changes nothing, or up to the limit; return `done`."""
        while self.left != 0 and self.step(work):
            pass
        return self.done

    def through(self, work: Callable[..., tuple[int, Place | None]], begin: Place) -> bool:
        """
        Do rounds from place to place, up to the limit; return whether they came to the end.

        A round gets the place where it begins, and returns that of the next one: None at the end,
        and its own if the next message would exceed the limit.
        """
        at: Place | None = None
        following: Place | None = begin
        while following is not None and following != at and self.left != 0:
            at = following
            _, following = self.run(partial(work, begin=at))
        return following is None
