"""Strings that are not valid UTF-8, and loads of them as older versions of ignis took them."""

from collections.abc import Sequence
from unittest.mock import patch

import pyarrow as pa

from queue_core import Queue
from queue_core.values import schema
from tests.factories import ORDERS, orders

#: The last two are halves of one character.
TEXTS = (b"good", b"\xff\xfe", b"\xc3", b"\xa9")


def foreign(values: Sequence[bytes | None] = TEXTS) -> pa.StringArray:
    """An array of strings of these bytes, as a producer can make it."""
    buffers = pa.array(values, pa.binary()).buffers()
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def foreign_orders(values: Sequence[bytes | None] = TEXTS, first: int = 0) -> pa.Table:
    """Orders of customers with such names."""
    column = ORDERS.field("customer")
    return orders(len(values), first).set_column(1, column, foreign(values))


def load_as_before(queue: Queue, rows: pa.Table) -> pa.Array:
    """Load rows as an older version of ignis, which did not look at strings."""
    with patch.object(schema, "is_valid", lambda _: True):
        return queue.load(rows)
