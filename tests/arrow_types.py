"""The types of Arrow, each with some values: Spark's own, those that become one, and the rest."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa

UTC = dt.UTC
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), False),
        pa.field("metadata", pa.binary(), False, metadata={"variant": "true"}),
    ]
)
ELEMENT = pa.field("element", pa.int64())
DEEP = pa.list_(
    pa.field("element", pa.struct([("a", pa.map_(pa.string(), pa.list_(ELEMENT)))]), False)
)


def map_of(key, value, *, nullable=True):
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, nullable))


def array(values, kind):
    """An array of a type; pyarrow 21 makes a dictionary of some types only from plain values."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).cast(kind)
    return pa.array(values, kind)


#: Types that Spark hands in and out as they are, each with some values.
KEPT = {
    "boolean": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-128, 127, None]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float32": (pa.float32(), [1.5, float("inf"), None]),
    "float64": (pa.float64(), [1e300, -0.0, None]),
    "string": (pa.string(), ["", "größe\x00", None]),
    "binary": (pa.binary(), [b"", b"\xff\x00", None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "timestamp": (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC), None]),
    "timestamp without zone": (pa.timestamp("us"), [NOON, None]),
    "time": (pa.time64("ns"), [dt.time(23, 59, 59, 999999), None]),
    "interval of days": (pa.duration("us"), [dt.timedelta(days=-3, microseconds=1), None]),
    "decimal": (pa.decimal128(38, 18), [Decimal("-12345678901234567890.5"), None]),
    "nothing": (pa.null(), [None, None]),
    "list": (pa.list_(ELEMENT), [[1, None], [], None]),
    "list without nulls": (pa.list_(pa.field("element", pa.string(), False)), [["a"], [], None]),
    "map": (map_of(pa.string(), pa.float64()), [[("a", 1.0), ("b", None)], [], None]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": 1, "b": None}, None]),
    "variant": (VARIANT, [{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}, None]),
    "deep": (DEEP, [[{"a": [("x", [1, 2])]}], [], None]),
}

#: Types that are turned into one of those: (type, kept as, values).
CONVERTED = {
    "uint8": (pa.uint8(), pa.int16(), [0, 255, None]),
    "uint16": (pa.uint16(), pa.int32(), [0, 2**16 - 1, None]),
    "uint32": (pa.uint32(), pa.int64(), [0, 2**32 - 1, None]),
    "float16": (pa.float16(), pa.float32(), [np.float16(1.5), None]),
    "large string": (pa.large_string(), pa.string(), ["a", None]),
    "string view": (pa.string_view(), pa.string(), ["a" * 20, None]),
    "large binary": (pa.large_binary(), pa.binary(), [b"a", None]),
    "binary view": (pa.binary_view(), pa.binary(), [b"a" * 20, None]),
    "fixed binary": (pa.binary(2), pa.binary(), [b"ab", None]),
    "date64": (pa.date64(), pa.date32(), [dt.date(2024, 2, 29), None]),
    "seconds": (pa.timestamp("s"), pa.timestamp("us"), [NOON.replace(microsecond=0), None]),
    "milliseconds of a zone": (
        pa.timestamp("ms", "Europe/Berlin"),
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 2, 29, 12, tzinfo=UTC), None],
    ),
    "nanoseconds": (pa.timestamp("ns"), pa.timestamp("us"), [NOON, None]),
    "nanoseconds of a zone": (
        pa.timestamp("ns", "UTC"),
        pa.timestamp("us", "UTC"),
        [NOON.replace(tzinfo=UTC), None],
    ),
    "time of seconds": (pa.time32("s"), pa.time64("ns"), [dt.time(1, 2, 3), None]),
    "time of microseconds": (pa.time64("us"), pa.time64("ns"), [dt.time(1, 2, 3, 4), None]),
    "duration of nanoseconds": (pa.duration("ns"), pa.duration("us"), [dt.timedelta(1), None]),
    "duration of seconds": (pa.duration("s"), pa.duration("us"), [dt.timedelta(1), None]),
    "decimal of 32 bits": (pa.decimal32(5, 2), pa.decimal128(5, 2), [Decimal("1.25"), None]),
    "decimal of 64 bits": (pa.decimal64(15, 2), pa.decimal128(15, 2), [Decimal("1.25"), None]),
    "decimal of 256 bits": (pa.decimal256(30, 2), pa.decimal128(30, 2), [Decimal("1.25"), None]),
    "dictionary": (
        pa.dictionary(pa.int8(), pa.large_string()),
        pa.string(),
        ["a", "b", "a", None],
    ),
    "large list": (pa.large_list(pa.int64()), pa.list_(ELEMENT), [[1, None], None]),
    "list of fixed size": (pa.list_(pa.int64(), 2), pa.list_(ELEMENT), [[1, None], None]),
    "list with another name for its items": (
        pa.list_(pa.field("item", pa.uint8())),
        pa.list_(pa.field("element", pa.int16())),
        [[1, None], None],
    ),
    "map of large strings": (
        pa.map_(pa.large_string(), pa.date64()),
        map_of(pa.string(), pa.date32()),
        [[("a", dt.date(2024, 2, 29))], None],
    ),
    "struct of unsigned": (
        pa.struct([("a", pa.uint8()), ("b", pa.list_(pa.large_string()))]),
        pa.struct([("a", pa.int16()), ("b", pa.list_(pa.field("element", pa.string())))]),
        [{"a": 200, "b": ["x"]}, None],
    ),
}

#: Types that Spark has no place for, and what the error must say.
REFUSED = {
    "uint64": (pa.uint64(), "int64 or decimal128(20, 0)"),
    "decimal of too many digits": (pa.decimal256(39, 2), "at most 38 digits"),
    "decimal of a negative scale": (pa.decimal128(5, -2), "scale"),
    "decimal of more places than digits": (pa.decimal128(2, 5), "scale"),
    "union": (pa.dense_union([pa.field("a", pa.int64())]), "dense_union"),
    "run-end encoded": (pa.run_end_encoded(pa.int32(), pa.string()), "run_end_encoded"),
    "interval": (pa.month_day_nano_interval(), "month_day_nano_interval"),
    "extension": (pa.uuid(), "uuid"),
    "nested": (pa.list_(pa.struct([("deep", pa.uint64())])), "uint64"),
    "list view": (pa.list_view(pa.int64()), "list_view"),
}
