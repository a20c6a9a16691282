"""What the settings of a queue say of its messages, as SQL over their columns.

One mechanism for every rule: time to live, held messages and priorities become a condition and an
order, understood and worked out as those of consumers are. The moment of looking is a column too,
`NOW`, the same in all rows, which a consumer cannot name.
"""

from __future__ import annotations

from dataclasses import dataclass

from queue_core.column_roles import expiring, holding
from queue_core.model import Magazine, QueueInfo
from queue_core.schema import AGE, NOW


@dataclass(frozen=True, slots=True)
class Eligibility:
    """A condition, an order and a grouping; each None where there is none."""

    condition: str | None = None
    order: str | None = None
    #: The column of whose messages with one value at most one is in flight.
    group: str | None = None

    def __bool__(self) -> bool:
        return self != Eligibility()


def of_firing(queue: QueueInfo, magazine: Magazine) -> Eligibility:
    """What may be fired, and what first. Only in main do messages wait for those of their group."""
    rules = [_not_expired(queue), _not_held(queue)]
    return Eligibility(
        condition=" AND ".join(rule for rule in rules if rule) or None,
        order=_order(queue),
        group=queue.settings.group if magazine is Magazine.MAIN else None,
    )


def of_moving(queue: QueueInfo) -> Eligibility:
    """What may go back to main: all but what is expired."""
    return Eligibility(condition=_not_expired(queue))


def of_expiry(queue: QueueInfo) -> Eligibility:
    """What is expired by its own column."""
    column = expiring(queue.settings, queue.schema)
    return Eligibility(condition=_reached(column) if column else None)


def _not_expired(queue: QueueInfo) -> str | None:
    column = expiring(queue.settings, queue.schema)
    return f"NOT ({_reached(column)})" if column else None


def _not_held(queue: QueueInfo) -> str | None:
    column = holding(queue.settings, queue.schema)
    return f"NOT (({_quoted(column)} > {NOW}) IS TRUE)" if column else None


def _order(queue: QueueInfo) -> str | None:
    priority, aging = queue.settings.priority, queue.settings.priority_aging
    if priority is None:
        return None
    if aging is None:
        return f"{_quoted(priority)} DESC"
    return f"coalesce({_quoted(priority)}, 0) + {AGE} / {float(aging)!r} DESC"


def _reached(column: str) -> str:
    return f"({_quoted(column)} <= {NOW}) IS TRUE"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
