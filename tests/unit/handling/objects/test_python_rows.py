"""Messages as Python dicts, which handlers of one message are given."""

import datetime as dt

import pyarrow as pa
import pytest

from tests.unit.handling.handler_runs import DELETED, messages, outcomes


def test_a_message_is_a_dict_of_plain_python():
    seen = []
    at = dt.datetime(2013, 1, 1, 5, 17, tzinfo=dt.UTC)
    row = {
        "_message_id": 0,
        "text": "a",
        "at": at,
        "day": at.date(),
        "local": at.replace(tzinfo=None),
        "nothing": None,
        "items": [{"name": "pen", "tags": {"colour": "red"}}],
    }
    item = pa.struct([("name", pa.string()), ("tags", pa.map_(pa.string(), pa.string()))])
    schema = pa.schema(
        [
            ("_message_id", pa.int64()),
            ("text", pa.string()),
            # As Spark hands it over: in the session's time zone.
            ("at", pa.timestamp("us", "America/New_York")),
            ("day", pa.date32()),
            ("local", pa.timestamp("us")),
            ("nothing", pa.timestamp("us", "UTC")),
            ("items", pa.list_(item)),
        ]
    )

    outcomes(lambda m: seen.append(m) or True, pa.RecordBatch.from_pylist([row], schema))

    assert seen == [row]
    assert seen[0]["at"].tzinfo is dt.UTC


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_value_that_python_cannot_represent_sidelines_its_own_message_only(kind, place):
    times = [0] * 7
    times[place] = 1 << 60
    settled = outcomes(lambda _: True, messages(7, at=pa.array(times, kind)))

    outcome, kind, reason = settled.pop(place)
    assert (outcome, kind) == ("sideline", "unreadable")
    assert "out of range" in reason
    assert settled == [DELETED] * 6
