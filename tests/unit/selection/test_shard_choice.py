"""Shard choice: a firing that has met another one remembers it for a while."""

from sqlalchemy import create_engine

from queue_core.selection import shard_choice
from queue_core.selection.shard_choice import CONTENTION_SECONDS, Contention
from tests.clocks import Stopwatch


def test_a_meeting_counts_for_a_while_and_only_in_its_queues(monkeypatch):
    watch = Stopwatch(monkeypatch, shard_choice)
    contention, here = Contention(), create_engine("sqlite://")
    assert not contention.is_near(here, "orders")

    contention.note(here, "orders")

    assert contention.is_near(here, "orders")
    assert not contention.is_near(here, "invoices")
    assert not contention.is_near(create_engine("sqlite://"), "orders")
    watch.now += CONTENTION_SECONDS - 0.1
    assert contention.is_near(here, "orders")
    watch.now += 0.2
    assert not contention.is_near(here, "orders")


def test_many_queues_take_no_more_memory():
    contention, here = Contention(), create_engine("sqlite://")
    for queue in range(5000):
        contention.note(here, queue)
    assert contention.is_near(here, 4999)
    assert sum(contention.is_near(here, queue) for queue in range(5000)) <= 1024
