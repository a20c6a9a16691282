"""Rules of a queue's settings for its messages, as SQL over their columns.

Expiry, hold and priority columns become a condition and an order, which are parsed and evaluated
like those of consumers. The moment of a scan is the column `NOW`, with one value for all rows.
Consumers cannot name it.
"""

from __future__ import annotations

from dataclasses import dataclass

from queue_core.values.column_roles import expiring, holding
from queue_core.values.limits import Limit
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.schema import AGE, NOW


@dataclass(frozen=True, slots=True)
class Eligibility:
    """A condition, an order, a grouping, and limits; None for each that is missing."""

    condition: str | None = None
    order: str | None = None
    #: The group column: at most one message of each value is in flight.
    group: str | None = None
    #: The limits of values of columns.
    limits: tuple[Limit, ...] = ()

    def __bool__(self) -> bool:
        return self != Eligibility()


def of_firing(queue: QueueInfo, magazine: Magazine) -> Eligibility:
    """Return the rules of a firing. Expiry columns and groups count only in main."""
    in_main = magazine is Magazine.MAIN
    rules = [_not_expired(queue) if in_main else None, _not_held(queue)]
    return Eligibility(
        condition=" AND ".join(rule for rule in rules if rule) or None,
        order=_order(queue),
        group=queue.settings.group if in_main else None,
        limits=tuple(each for each in queue.settings.limits if in_main and each.column),
    )


def of_moving(queue: QueueInfo) -> Eligibility:
    """Return the rules of a shovel: all messages except expired ones."""
    return Eligibility(condition=_not_expired(queue))


def of_expiry(queue: QueueInfo) -> Eligibility:
    """Return the rules of the expiry task in main: messages whose own expiry time has passed."""
    column = expiring(queue.settings, queue.schema)
    return Eligibility(condition=_reached(column) if column else None)


def _not_expired(queue: QueueInfo) -> str | None:
    column = expiring(queue.settings, queue.schema)
    return f"NOT ({_reached(column)})" if column else None


def _not_held(queue: QueueInfo) -> str | None:
    column = holding(queue.settings, queue.schema)
    return f"NOT (({quoted(column)} > {NOW}) IS TRUE)" if column else None


def _order(queue: QueueInfo) -> str | None:
    priority, aging = queue.settings.priority, queue.settings.priority_aging
    if priority is None:
        return None
    if aging is None:
        return f"{quoted(priority)} DESC"
    return f"coalesce({quoted(priority)}, 0) + {AGE} / {float(aging)!r} DESC"


def _reached(column: str) -> str:
    return f"({quoted(column)} <= {NOW}) IS TRUE"


def quoted(name: str) -> str:
    """Return the name of a column as conditions and orders may always have it."""
    return "`" + name.replace("`", "``") + "`"
