"""Peek: look at messages without taking them. Changes nothing."""

from __future__ import annotations

from queue_core.catalog import read_plans
from queue_core.catalog.database import Catalog
from queue_core.model import QueueInfo, ReadPlan
from queue_core.selection.acquire import acquire
from queue_core.selection.candidates import find_candidates
from queue_core.selection.request import FireRequest


def peek(catalog: Catalog, storage_uri: str, queue: QueueInfo, wanted: FireRequest) -> ReadPlan:
    """How to read the messages that such a firing would take now."""
    picked = find_candidates(catalog, wanted)
    with catalog.read() as connection:
        chosen = acquire(connection, wanted, None, picked)
        return read_plans.build(connection, [queue], chosen, storage_uri)
