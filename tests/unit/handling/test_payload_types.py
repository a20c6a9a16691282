"""Objects of dataclasses and pydantic models from JSON values."""

import json
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest
from pyspark import cloudpickle

from queue_core.errors import BadOption
from queue_core.handling.payload_types import reader_of
from tests.unit.handling.handler_runs import handled


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
