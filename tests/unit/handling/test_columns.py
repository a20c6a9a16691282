"""The columns that a handler is given, and the errors of pools and queries alike."""

import pytest

from queue_core.errors import BadOption, SchemaMismatch
from queue_core.handling.columns import check_columns, check_payload, handler_columns
from queue_core.handling.payloads import Payload
from queue_core.values.schema import METADATA

OWN = ["number", "text"]


@pytest.mark.parametrize(
    ("columns", "payload", "read"),
    [
        (None, None, ["number", "text", "_message_id", "_queue", "_attempt"]),
        (["text", "text"], None, ["text", "_message_id"]),
        ([], None, ["_message_id"]),
        (None, Payload("text"), ["text", "_message_id"]),
        (
            None,
            Payload("text", with_metadata=True),
            ["number", "text", "_message_id", "_queue", "_attempt"],
        ),
        (["number"], Payload("text", with_metadata=True), ["number", "text", "_message_id"]),
    ],
)
@pytest.mark.parametrize("names", [OWN, [*OWN, *METADATA.names]])
def test_the_columns_that_are_read(names, columns, payload, read):
    assert handler_columns(names, columns, payload) == read


@pytest.mark.parametrize(
    ("columns", "payload", "told"),
    [
        ("text", None, "columns='text': give a list of column names"),
        (["number"], Payload("text"), "use with_metadata=True"),
    ],
)
def test_columns_that_cannot_be_given_are_refused(columns, payload, told):
    with pytest.raises(BadOption, match=told):
        handler_columns(OWN, columns, payload)


def test_a_column_that_the_queue_does_not_have_is_refused():
    check_columns(["orders"], OWN, ["number"])
    with pytest.raises(
        SchemaMismatch,
        match=r"queue 'orders' has no column 'txt'; did you mean 'text'.*number, text",
    ):
        check_columns(["orders"], OWN, ["number", "txt"])


def test_a_payload_that_is_not_text_is_refused():
    check_payload("text", "string", is_text=True)
    with pytest.raises(BadOption, match="payload='number' is bigint, not string or binary"):
        check_payload("number", "bigint", is_text=False)
