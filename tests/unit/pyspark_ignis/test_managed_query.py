"""How the queue manager stops queries: between batches, and not for longer than it was asked to."""

from types import SimpleNamespace

import pytest

from pyspark_ignis.managed_query import ManagedQuery, consume_arguments, stop_between_batches
from queue_core.errors import BadName, BadOption

LONG = 60.0


class Query:
    """A query that works on a batch until its progress was read *looks* times."""

    def __init__(self, looks, *, idle=False):
        self.looks = looks
        self.isActive = True
        self.status = {"isDataAvailable": not idle}

    @property
    def lastProgress(self):
        self.looks -= 1
        return SimpleNamespace(batchId=7 if self.looks < 0 else 6)

    def stop(self):
        self.isActive = False


def test_a_query_is_stopped_when_its_batch_is_done():
    query = Query(looks=3)

    stop_between_batches([query], LONG)

    assert not query.isActive
    assert query.looks == -1


def test_a_query_without_work_is_stopped_at_once():
    query = Query(looks=10**6, idle=True)

    stop_between_batches([query], LONG)

    assert not query.isActive
    assert query.looks > 10**6 - 10


def test_no_query_is_waited_for_longer_than_said():
    queries = [Query(looks=10**6), Query(looks=10**6)]

    stop_between_batches(queries, 0.05)

    assert [query.isActive for query in queries] == [False, False]


def test_a_query_that_ends_meanwhile_is_not_waited_for():
    query = Query(looks=10**6)
    query.isActive = False

    stop_between_batches([query], LONG)

    assert query.looks > 10**6 - 10


class Ended:
    """A query that has ended, with an error or without one."""

    isActive = False

    def __init__(self, error=None):
        self.exception = lambda: error


def test_only_the_refusal_of_the_last_query_keeps_another_from_being_started():
    refusal = RuntimeError("the handler approve returned None instead of a decision")
    queries = [Ended(refusal), Ended(), Ended()]
    managed = ManagedQuery(lambda: queries.pop(0))
    old, grown = (SimpleNamespace(id=1, name="orders", schema_version=each) for each in (1, 2))

    for _ in range(2):
        managed.attend([old])
    assert managed.state().starts == 1

    for _ in range(2):
        managed.attend([grown])
    assert managed.state().starts == 3


class Ending(Ended):
    """A query that runs at two looks, and has ended by itself at the next one."""

    looks = 2

    @property
    def isActive(self):
        self.looks -= 1
        return self.looks >= 0

    def stop(self):
        """Do nothing, as that of a query that has ended."""


def test_a_query_may_end_by_itself_while_it_is_stopped():
    managed = ManagedQuery(Ending)
    managed.attend([SimpleNamespace(id=1, name="orders", schema_version=1)])

    managed.leave("deactivated")

    assert managed.state().status == "deactivated"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda: True, r"handlers\['orders'\]: .* cannot take its 1 argument"),
        ({"handler": lambda message: True, "with_metadata": True}, "cannot take its 2 arguments"),
    ],
)
def test_a_handler_that_no_query_could_call_is_refused(given, told):
    with pytest.raises(BadOption, match=told):
        consume_arguments({"orders": given})


def test_a_sideline_has_no_managed_query():
    with pytest.raises(BadName, match="'orders_SIDELINE': handlers are for queues, not for"):
        consume_arguments({"orders_SIDELINE": bool})
