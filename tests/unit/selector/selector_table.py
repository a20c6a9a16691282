"""A table with columns of all kinds, and the rows that conditions choose."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selector import Selector

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("priority", pa.int32()),
        ("size", pa.int64()),
        ("kind", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("x", pa.float64()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("box", pa.struct([("w", pa.int32()), ("inner", pa.struct([("h", pa.string())]))])),
        ("tags", pa.list_(pa.string())),
        ("group", pa.string()),
        ("_shard", pa.int32()),
    ]
)
TABLE = pa.Table.from_pylist(
    [
        {
            "id": 0,
            "priority": 5,
            "size": 2**63 - 1,
            "kind": "a",
            "price": Decimal("1.50"),
            "x": 1.5,
            "ok": True,
            "day": dt.date(2024, 1, 31),
            "at": dt.datetime(2024, 1, 31, 12, 30),
            "local": dt.datetime(2024, 1, 31, 12, 30),
            "raw": b"\x00\xff",
            "box": {"w": 1, "inner": {"h": "q"}},
            "tags": ["t"],
            "group": "it's",
            "_shard": 0,
        },
        {
            "id": 1,
            "priority": -7,
            "size": -(2**63),
            "kind": "Ab%c",
            "price": Decimal("-99999999.99"),
            "x": float("nan"),
            "ok": False,
            "day": dt.date(1969, 12, 31),
            "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            "local": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            "raw": b"",
            "box": {"w": None, "inner": None},
            "tags": [],
            "group": "g",
            "_shard": 1,
        },
        {"id": 2},
        {"id": 3, "priority": 0, "size": 0, "kind": " a\nb ", "price": Decimal(0), "x": -0.0},
    ],
    schema=SCHEMA,
)


def select(text, table=TABLE):
    """The ids of the rows that are eligible."""
    mask = Selector.parse(text, table.schema).mask(table)
    assert mask.type == pa.bool_()
    assert mask.null_count == 0
    return [
        row
        for row, eligible in zip(table["id"].to_pylist(), mask.to_pylist(), strict=True)
        if eligible
    ]


def fault(text, kind=Selector):
    with pytest.raises(BadSelector) as caught:
        kind.parse(text, SCHEMA)
    return str(caught.value)
