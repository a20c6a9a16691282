"""`selector` and `orderBy` through Spark."""

import traceback
from itertools import chain

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.spark.rig import assert_rows, counts, finish


@pytest.fixture
def queue(rig):
    """Two hundred orders in four shards."""
    return rig.orders(200, shards=4, key="customer")


def test_a_stream_fires_only_what_its_selector_lets_through(rig, queue):
    batches = rig.numbers(rig.source(selector="number % 50 = 7", maxMessagesPerTrigger=3))
    assert sorted(chain.from_iterable(batches)) == [7, 57, 107, 157]
    assert counts(queue, "waiting") == [196]


@pytest.mark.parametrize("name", ["round_number", pytest.param("ROUND", marks=pytest.mark.nightly)])
def test_a_function_selects_what_is_fired_and_what_is_read(rig, queue, name):
    selector = f"tests.own_checks:{name}"
    assert_rows(rig.read(selector=selector).where("number < 30").select("number"), 0, 10, 20)
    batches = rig.numbers(rig.source(selector=selector, maxMessagesPerTrigger=7))
    assert sorted(chain.from_iterable(batches)) == list(range(0, 200, 10))
    assert counts(queue, "waiting") == [180]


def test_a_browser_selects_by_age(rig, queue):
    young = "_age BETWEEN 0 AND 3600 AND number < 3"
    assert_rows(rig.read(selector=young).select("number"), 0, 1, 2)
    assert rig.read(selector="_age > 3600").count() == 0
    batches = rig.numbers(rig.source(ack="browse", selector=young))
    assert sorted(chain.from_iterable(batches)) == [0, 1, 2]


def test_a_function_that_is_not_there_is_refused_by_its_path(rig, queue):
    with pytest.raises(PySparkException, match=r"selector 'tests\.own_checks:oval' cannot be"):
        rig.source(selector="tests.own_checks:oval")


@pytest.mark.parametrize("option", [{"selector": "amonut > 5"}, {"orderBy": "amonut"}])
def test_a_selection_that_does_not_fit_is_refused_when_the_source_is_made(rig, queue, option):
    """Not when the query runs: Spark would show the sentence below a hundred lines."""
    said = "no column 'amonut'; did you mean 'amount'"
    with pytest.raises(PySparkException, match=said) as caught:
        rig.source(**option)

    assert len(traceback.format_exception(caught.value)) < 20
    assert str(caught.value).count("File ") == 1
    assert counts(queue, "fired") == [0]


@pytest.mark.nightly
def test_a_batch_read_takes_a_selector_over_columns_that_it_does_not_show(rig, queue):
    selector = "customer = 'customer-3' AND number < 20"
    assert_rows(rig.read(schema="number LONG", selector=selector), 3, 13)


def test_with_a_given_schema_a_malformed_selector_ends_the_query_with_its_place(rig, queue):
    """Spark does not ask for the columns then."""
    stream = rig.source(schema="number LONG", selector="nmber > 3")
    with pytest.raises(StreamingQueryException, match="did you mean 'number'") as caught:
        finish(rig.each(stream, lambda *_: None))

    assert "translate.py" not in str(caught.value)


@pytest.mark.parametrize("count", [0, 5])
@pytest.mark.parametrize("selector", ["nmber > 3", "number >"])
@pytest.mark.parametrize("schema", [None, "number LONG"])
def test_a_batch_read_refuses_a_malformed_selector_of_a_queue_without_messages_too(
    rig, count, selector, schema
):
    rig.orders(count)
    with pytest.raises(PySparkException, match="BadSelector") as caught:
        rig.read(schema=schema, selector=selector).collect()

    assert len(traceback.format_exception(caught.value)) < 30
    assert "translate.py" not in str(caught.value)


def test_an_order_is_refused_where_nothing_is_fired(rig, queue):
    for option in ({"orderBy": "number"}, {"order": "global"}):
        with pytest.raises(Exception, match="order the DataFrame instead"):
            rig.read(**option).collect()
