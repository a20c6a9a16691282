"""The fields of dataclasses and pydantic models, and objects that are made again."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from typing import Annotated, ClassVar

import pyarrow as pa
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from queue_core.handling.objects.codecs import Misfit
from queue_core.handling.objects.fields import fields_of, is_message_class, maker


@dataclass(frozen=True)
class Line:
    sku: str
    count: int = 1


@dataclass(kw_only=True, slots=True)
class Bill:
    lines: list[Line]
    total: int = field(init=False, default=0)
    kinds: ClassVar[int] = 3

    def __post_init__(self):
        self.total = sum(line.count for line in self.lines)


class Customer(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str = Field(alias="fullName")
    credit: Annotated[Decimal, Field(max_digits=8, decimal_places=3)] = Decimal(0)


@dataclass
class Tree:
    children: list[Tree]


@dataclass
class Passing:
    number: InitVar[int]


@dataclass
class Empty:
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    number: int


class Numbers(RootModel[list[int]]):
    pass


def test_which_classes_are_classes_of_messages():
    assert is_message_class(Line)
    assert is_message_class(Customer)
    assert not is_message_class(Line("a"))
    assert not is_message_class(dict)


def test_fields_are_in_order_and_class_variables_are_left_out():
    assert [one.name for one in fields_of(Bill)] == ["lines", "total"]
    lines = fields_of(Bill)[0].codec.kind
    assert lines.value_type.names == ["sku", "count"]


def test_a_model_gives_the_digits_of_a_decimal():
    assert fields_of(Customer)[1].codec.kind == pa.decimal128(8, 3)


def test_objects_are_made_again_with_the_fields_that_no_constructor_takes():
    bill = Bill(lines=[Line("a", 2)])
    bill.total = 7
    assert maker(Bill, fields_of(Bill))([bill.lines, 7]) == bill


def test_a_model_is_made_by_the_names_of_its_fields():
    customer = Customer(fullName="Ada", credit=Decimal("1.500"))
    assert maker(Customer, fields_of(Customer))(["Ada", Decimal("1.500")]) == customer


def test_objects_within_objects_are_structs():
    codec = fields_of(Bill)[0].codec
    stored = codec.encoded([[Line("a", 2)]])
    assert stored == [[{"sku": "a", "count": 2}]]
    assert codec.decoded(stored) == [[Line("a", 2)]]
    with pytest.raises(Misfit, match="count: is null"):
        codec.decoded([[{"sku": "a", "count": None}]])


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Tree, "children: Tree contains itself"),
        (Passing, "InitVar"),
        (Empty, "no fields"),
        (Open, "extra='allow'"),
        (Numbers, "RootModel"),
    ],
)
def test_a_class_that_cannot_be_stored_is_refused(kind, told):
    with pytest.raises(Misfit, match=told):
        fields_of(kind)
