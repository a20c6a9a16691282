"""Values as JSON has them."""

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from queue_core.values.json_text import HIDDEN, as_json


@dataclass
class Point:
    x: int
    hidden: int = field(default=0, metadata=HIDDEN)


def test_each_value_can_be_written_as_json():
    value = {
        "n": float("nan"),
        "i": float("inf"),
        "b": b"\x00\xff",
        "d": Decimal("1.10"),
        "t": datetime(2026, 1, 2, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "s": timedelta(seconds=3),
        "p": (Point(1), None, True),
        3: object,
    }

    found = json.loads(as_json(value))

    assert (found["n"], found["i"]) == ("NaN", "Infinity")
    assert found["b"] == "AP8="
    assert found["d"] == "1.10"
    assert found["t"] == "2026-01-02T00:00:00+00:00"
    assert found["s"] == 3
    assert found["p"] == [{"x": 1}, None, True]
