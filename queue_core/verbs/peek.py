"""Peek: show the messages that a firing would take.

It changes nothing, so it needs neither `transact` nor crash points. If it must choose among the
messages of a subscription, they are taken in first (`take_in`).
"""

from __future__ import annotations

from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import read_plans
from queue_core.selection import suspects
from queue_core.selection.acquire import acquire
from queue_core.selection.candidates import find_candidates
from queue_core.selection.request import FireRequest
from queue_core.values.model import ReadPlan
from queue_core.verbs.take_in import take_in_for


def peek(catalog: Catalog, request: FireRequest) -> ReadPlan:
    """Return the plan to read the messages that *request* would take now."""
    take_in_for(catalog, request)
    with catalog.read() as connection:
        found = suspects.look(connection, None, request)
        there_are = found is not None and found.suspects
        parts = suspects.parts(connection, None, request, found=there_are)
    for part in parts:
        candidates = find_candidates(catalog, part.request)
        with catalog.read() as connection:
            taken = acquire(connection, part.request, None, candidates).taken
            if taken or part is parts[-1]:
                return read_plans.build(connection, request.queues, taken, request.storage)
    raise AssertionError("there is one part at least")
