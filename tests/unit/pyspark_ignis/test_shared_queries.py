"""The queries that the queues of a manager share: what they are before they can be started."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from pyspark_ignis.shared_queries import SharedQueries, SharedQuery
from queue_core.errors import CatalogUnavailable


class Unavailable:
    """A catalog that cannot be reached."""

    def read(self):
        raise CatalogUnavailable("not now")


def test_a_query_whose_start_the_catalog_prevents_has_a_state_and_is_to_be_started_soon():
    queries = SharedQueries(None, "/checkpoints", 0.0)
    orders = SharedQuery(queries, {})
    schema = pa.schema([("number", pa.int64())])
    orders.attend([SimpleNamespace(id=1, name="orders", schema_version=1, schema=schema)])

    with pytest.raises(CatalogUnavailable):
        queries.settle_in(Unavailable())

    assert orders.running is None
    assert orders.state().status == "stopped"
    assert queries.failed

    orders.leave("stopped")
    queries.settle_in(Unavailable())
    assert not queries.failed


def test_queues_of_one_log_are_in_different_queries():
    queries = SharedQueries(None, "/checkpoints", 0.0)
    schema = pa.schema([("number", pa.int64())])
    roots = {"orders": 1, "billing": 1, "shipping": 1, "mails": 4}
    infos = {name: SimpleNamespace(name=name, schema=schema, root=at) for name, at in roots.items()}

    places = {name: SharedQuery(queries, {}) for name in roots}
    for name, place in places.items():
        place.attend([infos[name]])
    of = {name: place.query for name, place in places.items()}
    assert len({of["orders"], of["billing"], of["shipping"]}) == 3
    assert of["mails"] is of["orders"]
    for name, place in places.items():
        place.attend([infos[name]])
        assert place.query is of[name]
