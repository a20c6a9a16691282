"""Messages in flight that a command left alone: who holds them, and how to take them back."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from queue_core import Queue
from queue_core.watching.holders import holding, sentences


def still_held(queue: Queue, without: Container[str] = ()) -> tuple[list[str], dict[str, Any]]:
    """Return lines about the consumers that hold messages of a queue, and their figures."""
    found = holding(queue.store.catalog, queue.info.id)
    holders = [each for each in found if each.name not in without]
    figures = {"held": {each.name: each.held for each in holders}} if holders else {}
    return sentences(holders, queue.name), figures
