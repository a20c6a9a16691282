"""Blocked: which rule of a queue holds back each message that waits.

It asks what a firing would take, as `Queue.peek` does, and then what it would take without one of
the rules. So it reads messages, and is for one queue at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.errors import IgnisError
from queue_core.segments.reader import read_table
from queue_core.selection.queue_rules import of_moving, quoted
from queue_core.selection.request import Demand
from queue_core.selection.selection import Selection
from queue_core.values.column_roles import expiring, holding
from queue_core.values.limits import text_of
from queue_core.values.model import QueueInfo, ReadPlan
from queue_core.verbs.peek import peek
from queue_core.watching.causes import Blocked

#: The settings by which messages of main expire.
_EXPIRY = ["message_expiry", "expires_at"]
#: What turns a setting off, if it is not None.
_NONE: dict[str, Any] = {"limits": (), "expires_at": ""}


def look(catalog: Catalog, storage: str, queue: QueueInfo) -> list[Blocked]:
    """
    Return the rule, if there is one; *storage*: the URI from which messages are read.

    Nothing if a message could be fired now, or if that cannot be found out.
    """
    settings = queue.settings
    held = holding(settings, queue.schema)
    can_expire = settings.message_expiry is not None or expiring(settings, queue.schema)
    of_values = [each for each in settings.limits if each.column is not None]
    names = {
        "limits": text_of(of_values),
        "group": settings.group,
        "expires_at": "expiry" if can_expire else None,
        "max_deliveries": settings.max_deliveries and str(settings.max_deliveries),
    }
    if not (held or any(names.values())):
        return []
    try:
        if _next(catalog, storage, queue).tasks:
            return []
        for rules in (["limits"], ["group"], ["limits", "group"], _EXPIRY, ["max_deliveries"]):
            name = names[rules[-1]]
            if name and _next(catalog, storage, _without(queue, *rules)).tasks:
                return [Blocked(rules[-1], name)]
        return [] if held is None else _held(catalog, storage, queue, held)
    except IgnisError:
        return []


def _held(catalog: Catalog, storage: str, queue: QueueInfo, column: str) -> list[Blocked]:
    """Return when the first message may be fired that its own time holds back."""
    # All that wait, except for expired ones.
    found = Selection.parse([queue], order_by=quoted(column), eligibility=of_moving)
    free = _without(queue, "limits", "group", "fair_by")
    request = Demand(max_messages=1).request([free], found, storage)
    first = read_table(peek(catalog, request)).column(column)
    if not len(first) or not first[0].is_valid:
        return []
    with catalog.read() as connection:
        left = first[0].cast("timestamp[us]").value - dialect.read_clock(connection)
    return [Blocked("hold_until", column, left / 1e6)] if left > 0 else []


def _next(catalog: Catalog, storage: str, queue: QueueInfo) -> ReadPlan:
    """Return how to read the message that would be fired next."""
    demand = Demand(max_messages=1)
    return peek(catalog, demand.request([queue], demand.selection([queue]), storage))


def _without(queue: QueueInfo, *rules: str) -> QueueInfo:
    """Return a queue without some of its rules."""
    none: dict[str, Any] = {rule: _NONE.get(rule) for rule in rules}
    settings = replace(queue.settings, **none)
    return replace(queue, settings=settings, stored_settings=None)
