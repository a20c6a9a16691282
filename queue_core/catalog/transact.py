"""Run the transaction of a verb, between its crash points."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.support import faults

Result = TypeVar("Result")

#: Called first in a transaction; raises if the transaction must not happen (`Leader.guard`).
Guard = Callable[[Connection], None]


def transact(
    catalog: Catalog,
    verb: str,
    work: Callable[[Connection], Result],
    guard: Guard | None = None,
    *,
    grows: bool = False,
    late: bool = False,
) -> Result:
    """
    Write in one transaction; pass the crash points before and after its commit.

    *grows* and *late* are as in `Catalog.write`.
    """

    def guarded(connection: Connection) -> Result:
        if guard is not None:
            guard(connection)
        result = work(connection)
        faults.point(f"{verb}.before_commit")
        return result

    result = catalog.write(guarded, grows=grows, late=late)
    faults.point(f"{verb}.committed")
    return result
