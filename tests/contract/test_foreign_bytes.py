"""Strings that are not valid UTF-8: no load takes them."""

import pyarrow as pa
import pytest
from sqlalchemy import create_engine

from queue_core.errors import SchemaMismatch
from tests.factories import ORDERS, make_queue
from tests.foreign import foreign, foreign_orders, load_as_before

pytestmark = pytest.mark.each_catalog

NESTED = {
    "string": foreign(),
    "large string": foreign().cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), foreign()),
    "list": pa.ListArray.from_arrays([0, 1, 1, 3, 4], foreign()),
    "map": pa.MapArray.from_arrays([0, 1, 2, 3, 4], pa.array([*"abcd"]), foreign()),
    "struct": pa.StructArray.from_arrays([pa.array([*"abcd"]), foreign()], names=["a", "b"]),
}


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize("values", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("as_batch", [False, True], ids=["table", "batch"])
def test_a_load_of_them_is_refused_and_names_queue_and_column(store, values, as_batch):
    rows = pa.table({"number": pa.array(range(4)), "text": values})
    good = store.create_queue("other", pa.schema([("number", pa.int64())]))
    queue = store.create_queue("texts", rows.schema)

    with pytest.raises(SchemaMismatch, match=r"queue 'texts': column 'text'.*not valid UTF-8"):
        queue.load(rows.combine_chunks().to_batches()[0] if as_batch else rows)
    assert queue.browse().num_rows == 0
    # Rows beside those that are loaded do not matter.
    assert len(queue.load(rows.slice(0, 1))) == 1
    assert len(good.load(rows.select(["number"]))) == 4


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize(
    "settings",
    [
        {"max_size": 2, "overflow": "fail"},
        {"max_size": 0},
        {"max_size": 2, "overflow": "ring"},
        {"policy": "latest", "key": "number"},
        {"dedup": ["number"], "key": "number"},
        {"fair_by": "customer", "categories": ["customer"], "attributes": ["customer"]},
    ],
    ids=str,
)
def test_each_way_of_loading_refuses_them(store, settings):
    queue = make_queue(store, **settings)

    with pytest.raises(SchemaMismatch, match="column 'customer'"):
        queue.load(foreign_orders(), timeout=0)
    with pytest.raises(SchemaMismatch, match="column 'customer'"):
        queue.load(foreign_orders(), ttl=60, timeout=0)
    assert queue.browse().num_rows == 0
    assert queue.schema == ORDERS


def test_a_load_in_a_transaction_of_the_caller_refuses_them(store):
    queue = make_queue(store)
    engine = create_engine(store.catalog.engine.url)
    with engine.begin() as connection, pytest.raises(SchemaMismatch, match="column 'customer'"):
        queue.within(connection).load(foreign_orders())
    engine.dispose()
    assert queue.browse().num_rows == 0


def test_a_shovel_to_another_queue_makes_texts_of_them(store):
    queue, target = make_queue(store), make_queue(store, "target")
    load_as_before(queue, foreign_orders())
    queue.sideline(queue.fire("all"))

    assert queue.shovel(to="target") == 4

    assert target.browse().column("customer").to_pylist() == ["good", "??", "?", "?"]
