"""Assertions about the outcomes of a handler."""

import pyarrow as pa
import pytest

from queue_core.testing import Handled

MESSAGES = pa.table(
    {
        "id": [1, 2, 3],
        "outcome": ["delete", "sideline", "sideline"],
        "kind": pa.array([None, "exception", "rejected"]),
        "reason": pa.array([None, "ValueError: declined", None]),
    }
)
HANDLED = Handled("orders", MESSAGES, {"bills": pa.table({"order": [2, 1], "n": [0, 0]})})
NOTHING = Handled("orders", MESSAGES.slice(0, 0), {})


def test_messages_are_found_by_their_outcome():
    assert HANDLED.deleted.column("id").to_pylist() == [1]
    assert HANDLED.sidelined.column("id").to_pylist() == [2, 3]
    assert HANDLED.reloaded.num_rows == 0


def test_what_is_true_is_accepted():
    HANDLED.assert_deleted(1)
    HANDLED.assert_sidelined(2)
    HANDLED.assert_sidelined(1, kind="exception", reason="declined")
    HANDLED.assert_reloaded(0)
    HANDLED.assert_loaded("bills", 2)
    HANDLED.assert_loaded("bills", [{"order": 1}, {"order": 2}])
    HANDLED.assert_loaded("others", [])
    NOTHING.assert_deleted(0)


def test_a_failure_describes_all_outcomes():
    with pytest.raises(AssertionError) as caught:
        HANDLED.assert_deleted()

    assert str(caught.value).splitlines() == [
        "1 messages were deleted, not all of them, at least one",
        "queue 'orders': 1 deleted, 2 sidelined",
        "  1 sidelined as exception: ValueError: declined",
        "  1 sidelined as rejected: no reason",
    ]


@pytest.mark.parametrize(
    "check",
    [
        lambda: NOTHING.assert_deleted(),
        lambda: HANDLED.assert_sidelined(2, kind="exception"),
        lambda: HANDLED.assert_sidelined(1, reason="expired"),
        lambda: HANDLED.assert_reloaded(1),
        lambda: HANDLED.assert_loaded("bills", 1),
        lambda: HANDLED.assert_loaded("bills", [{"order": 1}]),
        lambda: HANDLED.assert_loaded("bills", [{"order": 1}, {"order": 1}]),
        lambda: HANDLED.assert_loaded("bills", [{"other": 1}]),
        lambda: HANDLED.assert_loaded("others", 1),
    ],
)
def test_what_is_false_is_not(check):
    with pytest.raises(AssertionError):
        check()
