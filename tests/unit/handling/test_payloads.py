"""Payloads that are JSON reach handlers as objects; unreadable ones do not reach them."""

import json

import pyarrow as pa
import pytest

from pyspark_ignis import batch_handler
from queue_core.handling.handler import HandlerRunner
from queue_core.handling.payloads import Payload
from tests.unit.handling.handler_runs import handled


def seen_by(*texts, **how):
    """The messages that reach a handler."""
    seen = []
    handled(lambda *given: seen.append(given) or True, *texts, **how)
    return seen


@pytest.mark.parametrize("value", [{"a": [1, None, "ä"]}, [1, 2], "text", 1.5, True, None])
def test_a_handler_is_given_the_value(value):
    text = json.dumps(value)

    assert seen_by(text) == [(value,)]
    assert seen_by(text.encode(), kind=pa.binary()) == [(value,)]


def test_a_handler_is_given_the_other_columns_when_it_wants_them():
    assert seen_by('{"a": 1}', with_metadata=True) == [
        ({"a": 1}, {"_message_id": 0, "_attempt": 0})
    ]


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("{", pa.string(), "JSONDecodeError: Expecting property name"),
        ("", pa.string(), "JSONDecodeError: Expecting value"),
        (None, pa.string(), "value is null"),
        ("[" * 100_000, pa.string(), "RecursionError"),
        ("9" * 5000, pa.string(), "ValueError: Exceeds the limit"),
        (b'"\xff"', pa.binary(), "UnicodeDecodeError"),
        ('"a"'.encode("utf-16"), pa.binary(), "UnicodeDecodeError"),
    ],
)
@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_text_that_is_not_json_is_unreadable_and_never_ignored(text, kind, told, mark):
    ((outcome, what, reason),) = handled(mark(pytest.fail), text, kind=kind)

    assert (outcome, what) == ("sideline", "unreadable")
    assert reason.startswith(told)


def test_an_invalid_text_sidelines_its_own_message_only():
    broken = pa.array([b"1", b"\xff", b"2"]).view(pa.string())
    batch = pa.record_batch({"_message_id": range(3), "value": broken})

    (settled,) = HandlerRunner(lambda _: True, payload=Payload("value")).run([batch])

    assert settled.column("kind").to_pylist() == [None, "unreadable", None]


def test_an_exception_of_the_handler_is_its_own_and_may_be_ignored():
    def handler(_):
        raise ValueError("no")

    assert handled(handler, "{}") == [("delete", "exception", "ValueError: no")]


def test_a_batch_handler_decides_about_those_that_can_be_read():
    @batch_handler
    def odd(numbers, metadata):
        assert [each["_message_id"] for each in metadata] == [0, 2, 3]
        return [number % 2 == 1 for number in numbers]

    settled = handled(odd, "1", "{", "2", "3", with_metadata=True)

    assert [verdict[:2] for verdict in settled] == [
        ("delete", None),
        ("sideline", "unreadable"),
        ("sideline", "rejected"),
        ("delete", None),
    ]


def test_a_batch_handler_that_fails_leaves_the_unreadable_unreadable():
    @batch_handler
    def fail(_):
        raise KeyError("x")

    settled = handled(fail, "{", "1")

    assert [verdict[:2] for verdict in settled] == [
        ("sideline", "unreadable"),
        ("sideline", "exception"),
    ]
