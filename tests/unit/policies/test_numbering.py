"""Numbers of rows, ranks, and the first and last of each group."""

from __future__ import annotations

import pyarrow as pa

from queue_core.policies.numbering import matched

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("kind", pa.string()),
        ("n", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    ]
)


def test_equal_values_have_equal_numbers():
    rows = [{"x": 0.0, "y": None}, {"x": -0.0, "y": None}, None, {"x": float("nan"), "y": 1.0}]
    new = pa.table({"at": pa.array(rows, SCHEMA.field("at").type)})
    ours, theirs = matched(new, new.slice(1), ["at"])
    assert (ours[0] == ours[1], len(set(ours.tolist()))) == (True, 3)
    assert theirs.tolist() == ours[1:].tolist()
    assert matched(new.slice(2), new, ["at"])[1].tolist()[:2] == [-1, -1]
