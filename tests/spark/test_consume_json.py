"""`consume` with JSON messages: handlers get objects."""

from dataclasses import dataclass

import pyarrow as pa
import pytest

from queue_core import Store
from tests.spark.rig import counts

pytestmark = pytest.mark.nightly

EVENTS = pa.schema([("value", pa.string()), ("source", pa.string())])
TEXTS = (
    '{"order": 1, "paid": true}',
    '{"order": 2, "paid": false}',
    '{"order": "three"}',
    "{",
    None,
)


@dataclass
class Paid:
    order: int
    paid: bool


@pytest.fixture
def events(tmp_path):
    """Make a queue of texts, some of them unreadable."""
    queue = Store.open(tmp_path / "store").create_queue("events", EVENTS, shards=1)
    queue.load([{"value": text, "source": "till"} for text in TEXTS])
    return queue


OF_EVENTS = {"queue": "events", "payload": "value"}


def told(queue):
    """Return the sidelined texts with their kinds, each once."""
    sidelined = queue.browse(magazine="sideline")
    ids, values = (sidelined[name].to_pylist() for name in ("_message_id", "value"))
    texts = dict(zip(ids, values, strict=True))
    return [(texts.pop(each["message_id"]), each["kind"]) for each in queue.failures().to_pylist()]


def test_a_handler_is_given_objects_of_the_users_type(start, events):
    start(
        lambda message: isinstance(message, Paid) and message.paid, payload_type=Paid, **OF_EVENTS
    )

    assert told(events) == [
        (TEXTS[1], "rejected"),
        (TEXTS[2], "unreadable"),
        (TEXTS[3], "unreadable"),
        (TEXTS[4], "unreadable"),
    ]
    assert events.failures()["reason"].to_pylist() == [
        None,
        "Misfit: paid: is missing",
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 "
        "(char 1)",
        "value is null",
    ]


def test_a_pydantic_model_of_the_test_itself_reaches_the_executors(start, events):
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Order", order=(int, ...), paid=(bool, False))

    start(lambda message: message.order == 1, payload_type=model, **OF_EVENTS)

    assert [kind for _, kind in told(events)] == ["rejected", *["unreadable"] * 3]


@pytest.mark.parametrize(
    ("columns", "given"),
    [
        (None, ["_attempt", "_message_id", "_queue", "source"]),
        (["source"], ["_message_id", "source"]),
    ],
)
def test_a_handler_gets_the_metadata_on_request(start, events, columns, given):
    def check(message, metadata):
        assert sorted(metadata) == given
        assert metadata["source"] == "till"
        return True

    start(check, with_metadata=True, columns=columns, **OF_EVENTS)

    assert [kind for _, kind in told(events)] == ["unreadable"] * 2
    assert counts(events, "deleted") == [3]
