"""Shard choice: a firing that has met another one remembers it for a while."""

from types import SimpleNamespace

from queue_core.selection import shard_choice
from queue_core.selection.shard_choice import CONTENTION_SECONDS, Contention


def test_a_meeting_counts_for_a_while_and_only_in_its_queues(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(shard_choice, "time", SimpleNamespace(monotonic=lambda: now[0]))
    contention = Contention()
    assert not contention.is_near("orders")

    contention.note("orders")

    assert contention.is_near("orders")
    assert not contention.is_near("invoices")
    now[0] += CONTENTION_SECONDS - 0.1
    assert contention.is_near("orders")
    now[0] += 0.2
    assert not contention.is_near("orders")


def test_many_queues_take_no_more_memory():
    contention = Contention()
    for queue in range(5000):
        contention.note(queue)
    assert contention.is_near(4999)
    assert sum(map(contention.is_near, range(5000))) <= 1024
