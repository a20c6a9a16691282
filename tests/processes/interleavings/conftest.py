"""Races of two, each written as a permutation of steps, on each catalog.

The first one stands before its commit, holding what it holds; then the second one comes. On SQLite
it waits for the whole database, on PostgreSQL only for what it needs. What comes of both must be
right whether the first one commits or rolls back.
"""

from __future__ import annotations

import pytest

from queue_core.catalog import dialect
from queue_core.catalog.databases.error_codes import ErrorCodes
from queue_core.support import faults
from queue_core.verbs import fire
from tests.factories import make_queue
from tests.processes import actors
from tests.processes.actors import Actor
from tests.statements import was_late


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    """
    Actors stop at fault points; none of them is ever told to try again, as by a deadlock.

    But a late transaction of SQLite begins again if others have written while it read.
    """
    refused = []
    can_retry = ErrorCodes.can_retry
    monkeypatch.setattr(faults, "point", actors.point)
    # Some give up a lock that they wait for, and here another one may hold it for longer.
    monkeypatch.setattr(fire, "WAIT_SECONDS", actors.PATIENCE)
    monkeypatch.setattr(dialect, "TASK_LOCK_SECONDS", actors.PATIENCE)
    noted = lambda codes, error: refused.append(error) or can_retry(codes, error)  # noqa: E731
    monkeypatch.setattr(ErrorCodes, "can_retry", noted)
    yield
    assert [error for error in refused if not was_late(error)] == []


@pytest.fixture
def one(address, store):
    actor = Actor("one", address)
    yield actor
    actor.close()


@pytest.fixture
def two(address, store):
    actor = Actor("two", address)
    yield actor
    actor.close()


@pytest.fixture
def topic(store):
    return make_queue(store, log="1 hour")


@pytest.fixture
def race(one, two):
    """
    Let the second verb come while the first one stands at a point; return both results.

    *waits*: whether the second waits for the first, and does not pass it. *fails*: the transaction
    of the first is rolled back.
    """

    def run(first, point, second, *, waits=True, fails=False):
        one.start(first, point)
        two.start(second)
        assert two.waits() if waits else two.passes()
        return one.roll_back() if fails else one.finish(), two.finish()

    return run
