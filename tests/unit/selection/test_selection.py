"""Selections: a consumer's conditions and order, combined with those of a queue's settings."""

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selection.selection import Selection, visible
from queue_core.values.model import QueueInfo
from queue_core.values.settings import QueueSettings

SCHEMA = pa.schema([("size", pa.int64()), ("urgency", pa.int32())])
ROWS = pa.table({"size": [3, 1, 2], "urgency": [1, 2, 1]}, schema=SCHEMA)


def select(*, settings=None, **wishes):
    queue = QueueInfo(
        id=7,
        name="orders",
        shards=1,
        key=None,
        schema=SCHEMA,
        schema_version=1,
        settings=QueueSettings(**settings or {}),
        created_at=0,
    )
    return Selection.parse([queue], "some/folder?secret=word", **wishes)


def test_without_conditions_and_order_any_message_may_be_taken():
    assert select() is None
    assert select(fallback=True) is None


def test_a_selector_is_a_condition_and_no_order():
    selection = select(selector="size > 1", fallback=True)

    assert selection.selector.mask(ROWS).to_pylist() == [True, False, True]
    assert selection.fallback
    assert not selection.ordered
    assert selection.sorted(ROWS, now=0) is ROWS
    plain = selection.without_selector()
    assert (plain.selector, plain.fallback, plain.rules) == (None, False, selection.rules)


def test_the_order_of_the_consumer_comes_before_that_of_the_queue():
    selection = select(order_by="urgency", settings={"priority": "size"})

    assert selection.ordered
    assert selection.sorted(ROWS, now=0)["size"].to_pylist() == [3, 2, 1]


def test_fallback_has_no_meaning_without_a_selector():
    assert not select(order_by="size", fallback=True).fallback


@pytest.mark.parametrize("wish", [{"selector": "wat > 1"}, {"order_by": "wat"}])
def test_an_error_shows_the_text_of_the_consumer(wish):
    with pytest.raises(BadSelector, match="wat"):
        select(settings={"priority": "size"}, **wish)


def test_the_storage_is_not_shown():
    assert "word" not in repr(select(selector="size > 1"))


def test_a_consumer_sees_the_columns_the_metadata_and_the_age():
    names = visible(SCHEMA).names

    assert names[:3] == ["size", "urgency", "_message_id"]
    assert names[-1] == "_age"
