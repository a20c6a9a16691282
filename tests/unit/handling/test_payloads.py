"""Payloads that are JSON reach handlers as objects; unreadable ones do not reach them."""

import json
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from pyspark_ignis import batch_handler
from queue_core.errors import BadOption
from queue_core.handling.payloads import Payload, reader_of
from tests.unit.handling.handler_runs import handled, runner_of


def seen_by(*texts, **how):
    """The messages that reach a handler."""
    seen = []
    handled(lambda *given: seen.append(given) or True, *texts, **how)
    return seen


@pytest.mark.parametrize("value", [{"a": [1, None, "ä"]}, [1, 2], "text", 1.5, True, None])
def test_a_handler_is_given_the_value(value):
    text = json.dumps(value)

    assert seen_by(text) == [(value,)]
    assert seen_by(text.encode(), kind=pa.binary()) == [(value,)]


def test_a_handler_is_given_the_other_columns_when_it_wants_them():
    assert seen_by('{"a": 1}', with_metadata=True) == [
        ({"a": 1}, {"_message_id": 0, "_attempt": 0})
    ]


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("{", pa.string(), "JSONDecodeError: Expecting property name"),
        ("", pa.string(), "JSONDecodeError: Expecting value"),
        (None, pa.string(), "value is null"),
        ("[" * 100_000, pa.string(), "RecursionError"),
        ("9" * 5000, pa.string(), "ValueError: Exceeds the limit"),
        (b'"\xff"', pa.binary(), "UnicodeDecodeError"),
        ('"a"'.encode("utf-16"), pa.binary(), "UnicodeDecodeError"),
    ],
)
@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_text_that_is_not_json_is_unreadable_and_never_ignored(text, kind, told, mark):
    ((outcome, what, reason),) = handled(mark(pytest.fail), text, kind=kind)

    assert (outcome, what) == ("sideline", "unreadable")
    assert reason.startswith(told)


def test_an_invalid_text_sidelines_its_own_message_only():
    broken = pa.array([b"1", b"\xff", b"2"]).view(pa.string())
    batch = pa.record_batch({"_message_id": range(3), "value": broken})

    (settled,) = runner_of(lambda _: True, payload=Payload("value")).run([batch])

    assert settled.column("kind").to_pylist() == [None, "unreadable", None]


def test_an_exception_of_the_handler_is_its_own_and_may_be_ignored():
    def handler(_):
        raise ValueError("no")

    assert handled(handler, "{}") == [("delete", "exception", "ValueError: no")]


def test_a_batch_handler_decides_about_those_that_can_be_read():
    @batch_handler
    def odd(numbers, metadata):
        assert [each["_message_id"] for each in metadata] == [0, 2, 3]
        return [number % 2 == 1 for number in numbers]

    settled = handled(odd, "1", "{", "2", "3", with_metadata=True)

    assert [verdict[:2] for verdict in settled] == [
        ("delete", None),
        ("sideline", "unreadable"),
        ("sideline", "rejected"),
        ("delete", None),
    ]


def test_a_batch_handler_that_fails_leaves_the_unreadable_unreadable():
    @batch_handler
    def fail(_):
        raise KeyError("x")

    settled = handled(fail, "{", "1")

    assert [verdict[:2] for verdict in settled] == [
        ("sideline", "unreadable"),
        ("sideline", "exception"),
    ]


class Colour(Enum):
    RED = "red"


@dataclass
class Item:
    name: str
    price: float = 0.0


@dataclass
class Order:
    number: int
    items: list[Item] = field(default_factory=list)
    first: Item | None = None
    total: float = field(init=False, default=0.0)

    def __post_init__(self):
        if self.number < 0:
            raise ValueError("a number below 0")


@dataclass
class Tree:
    leaf: str
    children: "list[Tree]" = field(default_factory=list)


def filled(kind, value):
    return reader_of(kind)(json.loads(json.dumps(value)))


def test_a_dataclass_is_filled_by_the_names_of_its_fields():
    given = {
        "number": 7,
        "items": [{"name": "pen", "price": 2}, {"name": "ink", "unknown": 1}],
        "first": {"name": "pen"},
        "unknown": [],
    }

    assert filled(Order, given) == Order(7, [Item("pen", 2.0), Item("ink")], Item("pen"))
    assert filled(Order, {"number": 7, "first": None}) == Order(7)


def test_a_dataclass_may_contain_itself():
    given = {"leaf": "a", "children": [{"leaf": "b"}, {"leaf": "c", "children": [{"leaf": "d"}]}]}

    assert filled(Tree, given) == Tree("a", [Tree("b"), Tree("c", [Tree("d")])])


@pytest.mark.parametrize(
    ("hint", "given", "value"),
    [
        (Any, {"a": 1}, {"a": 1}),
        (float, 1, 1.0),
        (bool, True, True),
        (str | int, 5, 5),
        (dict[str, Item], {"a": {"name": "pen"}}, {"a": Item("pen")}),
        (dict, {"a": 1}, {"a": 1}),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[str], ["a", "a"], {"a"}),
        (Literal["a", 1], "a", "a"),
        (Colour, "red", Colour.RED),
        (datetime, "2013-01-01T05:17:00+00:00", datetime.fromisoformat("2013-01-01T05:17Z")),
        (date, "2013-01-01", date(2013, 1, 1)),
        (Decimal, "1.10", Decimal("1.10")),
        (Decimal, 5, Decimal(5)),
        (UUID, "12345678123456781234567812345678", UUID(int=0x12345678123456781234567812345678)),
    ],
)
def test_fields_may_be_of_these_types(hint, given, value):
    kind = dataclass(type("Holder", (), {"__annotations__": {"it": hint}}))

    assert filled(kind, {"it": given}).it == value


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "number: is missing"),
        ([], "an object is needed for Order, not a list"),
        ({"number": "7"}, "number: a whole number is needed, not a str"),
        ({"number": True}, "number: a whole number is needed, not a bool"),
        ({"number": 1.5}, "number: a whole number is needed, not a float"),
        ({"number": None}, "number: a whole number is needed, not null"),
        ({"number": 1, "items": {}}, "items: a list is needed, not a dict"),
        ({"number": 1, "items": [{"name": "a"}, {}]}, "items[1].name: is missing"),
        ({"number": 1, "items": [{"name": 5}]}, "items[0].name: a text is needed, not a int"),
        ({"number": 1, "first": {"name": None}}, "first.name: a text is needed, not null"),
        ({"number": -1}, "a number below 0"),
    ],
)
def test_a_value_that_does_not_fit_a_dataclass_is_unreadable_with_its_path(given, told):
    ((outcome, kind, reason),) = handled(lambda _: True, json.dumps(given), read=reader_of(Order))

    assert (outcome, kind) == ("sideline", "unreadable")
    assert reason.partition(": ")[2] == told


@pytest.mark.parametrize(
    ("hint", "given", "told"),
    [
        (Colour, "blue", "it: 'blue' is not a valid Colour"),
        (date, "soon", "it: 'soon' is not a valid date"),
        (date, 5, "it: a text is needed for a date, not a int"),
        (Decimal, "x", "it: 'x' is not a valid Decimal"),
        (Literal["a"], "b", "it: 'b' is not one of 'a'"),
        (None, 1, "it: null is needed, not a int"),
        (int | str, [], "it: a whole number is needed, not a list"),
    ],
)
def test_values_that_do_not_fit_say_what_is_needed(hint, given, told):
    kind = dataclass(type("Holder", (), {"__annotations__": {"it": hint}}))

    with pytest.raises(ValueError, match="it: ") as misfit:
        filled(kind, {"it": given})
    assert str(misfit.value) == told


class Model:
    """Looks like a pydantic model."""

    @classmethod
    def model_validate(cls, value):
        if value != 1:
            raise ValueError("not 1")
        return cls()


def test_a_model_that_validates_itself_does():
    assert isinstance(reader_of(Model)(1), Model)
    assert handled(lambda _: True, "2", read=reader_of(Model)) == [
        ("sideline", "unreadable", "ValueError: not 1")
    ]


def test_a_pydantic_model_is_filled():
    pydantic = pytest.importorskip("pydantic")
    kind = pydantic.create_model("Order", number=(int, ...))

    assert reader_of(kind)({"number": "7"}).number == 7


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (dict, "give a dataclass or a pydantic model"),
        (Item("pen"), "give a dataclass or a pydantic model"),
        ("Item", "give a dataclass or a pydantic model"),
        (
            dataclass(type("Odd", (), {"__annotations__": {"it": complex}})),
            "complex.*cannot be read from JSON; use a pydantic model",
        ),
        (
            dataclass(type("Lost", (), {"__annotations__": {"it": "Nowhere"}})),
            "Lost has a field of an unknown type.*Nowhere",
        ),
    ],
)
def test_a_type_that_cannot_be_made_from_json_is_refused(kind, told):
    with pytest.raises(BadOption, match=told):
        reader_of(kind)


def test_a_reader_can_be_sent_to_the_executors():
    sent = cloudpickle.loads(cloudpickle.dumps(reader_of(Tree)))

    assert sent({"leaf": "a", "children": [{"leaf": "b"}]}).children[0].leaf == "b"
