"""Objects as columns, and columns as objects."""

from dataclasses import dataclass

import pyarrow as pa
import pytest

from queue_core.errors import SchemaMismatch
from queue_core.handling.objects.message_class import as_table, message_class
from queue_core.handling.objects.python_rows import Unreadable


@dataclass
class Visit:
    page: str
    seconds: int | None = None

    def __post_init__(self):
        if self.page == "/forbidden":
            raise ValueError("a forbidden page")


@dataclass
class Click:
    page: str


VISITS = message_class(Visit)


def test_a_class_has_the_columns_of_its_fields():
    page, seconds = pa.field("page", pa.string(), nullable=False), pa.field("seconds", pa.int64())
    assert VISITS.schema.equals(pa.schema([page, seconds]))


def test_objects_become_a_table_and_rows_stay_as_they_are():
    table = as_table([Visit("/", 3), Visit("/help")], "visits")
    assert table.to_pylist() == [{"page": "/", "seconds": 3}, {"page": "/help", "seconds": None}]
    assert as_table([{"page": "/"}], "visits") is None
    assert as_table([], "visits") is None
    assert as_table([5], "visits") is None


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        ([Visit("/"), Click("/")], "some are Visit, and some Click"),
        ([Visit("/", 1.5)], "queue 'visits': field 'seconds' of Visit: int is needed, not float"),
        ([Visit("/", 1 << 80)], "field 'seconds' of Visit"),
    ],
)
def test_objects_that_do_not_fit_are_refused(objects, told):
    with pytest.raises(SchemaMismatch, match=told):
        as_table(objects, "visits")


def test_a_message_that_the_class_refuses_does_not_harm_the_others():
    pages = ["/", "/forbidden", None, "/help"]
    made = VISITS.objects_of(pa.record_batch({"page": pages, "seconds": [1, 2, 3, 4]}))
    assert made == [
        Visit("/", 1),
        Unreadable("ValueError: a forbidden page"),
        Unreadable("Misfit: page: is null"),
        Visit("/help", 4),
    ]


def test_a_table_with_a_message_that_the_class_refuses_raises():
    table = pa.table({"page": ["/", None], "seconds": [1, 2], "_message_id": [7, 8]})
    with pytest.raises(SchemaMismatch, match=r"queue 'visits': message 8 is not a Visit: .* null"):
        VISITS.objects_in(table, "visits")
    assert VISITS.objects_in(table.slice(0, 1), "visits") == [Visit("/", 1)]
    assert VISITS.objects_in(table.slice(0, 0), "visits") == []


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (pa.schema([("page", pa.string())]), "queue 'visits' does not fit class Visit: it has no"),
        (pa.schema([("page", pa.int64()), ("seconds", pa.int64())]), "'page' is int64, and"),
    ],
)
def test_a_queue_that_does_not_fit_is_refused(schema, told):
    VISITS.check_fits(VISITS.schema, "visits")
    with pytest.raises(SchemaMismatch, match=told):
        VISITS.check_fits(schema, "visits")


@pytest.mark.parametrize("kind", [dict, 5, Visit("/")])
def test_other_classes_are_refused(kind):
    with pytest.raises(SchemaMismatch, match="is not a dataclass or a pydantic model"):
        message_class(kind)
