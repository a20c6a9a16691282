"""Let a queue of a few slices be large, so that side tasks look at parts of it."""

import pytest

from queue_core.catalog.slices import parts, rewritable
from queue_core.verbs import expire


def small_parts(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let a queue of more than *count* slices be large, and a part of it have so many."""
    monkeypatch.setattr(parts, "LARGE", count)
    monkeypatch.setattr(rewritable, "SMALL_PART", count)
    monkeypatch.setattr(rewritable, "SPARSE_PART", count)
    monkeypatch.setattr(expire, "PART", count)
