"""Let a queue of a few slices be large, so that side tasks look at parts of it."""

import pytest

from queue_core.catalog.slices import parts
from queue_core.upkeep.tasks import compaction
from queue_core.verbs import expire


def small_parts(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let a queue of more than *count* slices be large, and a part of it have so many."""
    monkeypatch.setattr(parts, "LARGE", count)
    monkeypatch.setattr(compaction, "SMALL_PART", count)
    monkeypatch.setattr(compaction, "SPARSE_PART", count)
    monkeypatch.setattr(expire, "PART", count)
