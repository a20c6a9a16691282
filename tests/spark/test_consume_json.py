"""`consume` with JSON messages: handlers get objects."""

from dataclasses import dataclass

import pyarrow as pa
import pytest

from pyspark_ignis import batch_handler, consume
from queue_core import Store
from tests.spark.consuming import counts, run

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


@dataclass
class Unlike:
    colour: str


@pytest.fixture
def events(tmp_path):
    """Make a queue of texts, some of them unreadable."""
    queue = Store.open(tmp_path / "store").create_queue("events", EVENTS, shards=1)
    queue.load([{"value": text, "source": "till"} for text in TEXTS])
    return queue


@pytest.fixture
def start(spark, tmp_path, checkpoint):
    """Consume the payloads of the test's queue until it is empty."""

    def start(handler, **how):
        how = {"checkpoint": checkpoint, "trigger": {"availableNow": True}} | how
        run(consume(spark, "events", handler, path=tmp_path / "store", payload="value", **how))

    return start


def told(queue):
    """Return the sidelined texts with their kinds, each once."""
    sidelined = queue.browse(magazine="sideline")
    ids, values = (sidelined[name].to_pylist() for name in ("_message_id", "value"))
    texts = dict(zip(ids, values, strict=True))
    return [(texts.pop(each["message_id"]), each["kind"]) for each in queue.failures().to_pylist()]


def test_a_handler_gets_the_parsed_text(start, events):
    def unpaid(message):
        assert set(message) <= {"order", "paid"}
        return message["order"] != 2

    start(unpaid, ignorable=ValueError)

    assert told(events) == [
        (TEXTS[1], "rejected"),
        (TEXTS[3], "unreadable"),
        (TEXTS[4], "unreadable"),
    ]
    assert counts(events, "deleted") == 2


def test_a_handler_is_given_objects_of_the_users_type(start, events):
    start(lambda message: isinstance(message, Paid) and message.paid, payload_type=Paid)

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

    start(lambda message: message.order == 1, payload_type=model)

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

    start(check, with_metadata=True, columns=columns)

    assert [kind for _, kind in told(events)] == ["unreadable"] * 2
    assert counts(events, "deleted") == 3


def test_a_handler_of_batches_is_given_lists(start, events):
    @batch_handler
    def check(messages, metadata):
        assert len(messages) == len(metadata) == 3
        return pa.table({"outcome": ["delete", "sideline", "sideline"], "kind": ["", "late", None]})

    start(check, with_metadata=True)

    assert told(events) == [
        (TEXTS[1], "late"),
        (TEXTS[2], "rejected"),
        (TEXTS[3], "unreadable"),
        (TEXTS[4], "unreadable"),
    ]


def test_a_handler_of_batches_is_not_called_for_nothing(start, events):
    def never(_):
        raise AssertionError

    start(
        batch_handler(never),
        payload_type=dataclass(type("None_", (), {"__annotations__": {"x": int}})),
    )

    assert [kind for _, kind in told(events)] == ["unreadable"] * 5


def test_an_unreadable_message_is_unreadable_again_after_a_shovel(start, events):
    """It is sidelined once per firing, and never lost."""
    start(lambda _: True)
    assert events.shovel() == 2

    start(lambda _: True)

    failures = events.failures()
    assert failures["kind"].to_pylist() == ["unreadable"] * 4
    assert failures["attempt"].to_pylist() == [0, 0, 1, 1]
    assert sorted(events.browse(magazine="sideline")["_attempt"].to_pylist()) == [2, 2]
