"""Waits: the columns of a settlement that say when a message is due again."""

import datetime as dt

import pyarrow as pa
import pytest

from queue_core.errors import BadOutcome
from queue_core.values.outcomes import Settlement
from queue_core.values.waits import WAITS

AT = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def settlement(outcomes, **columns):
    return Settlement.of(
        pa.table({"_message_id": range(len(outcomes)), "outcome": outcomes} | columns)
    )


def test_times_of_reloaded_and_sidelined_messages_are_kept():
    outcomes = ["reload", "sideline", "delete", "reload"]

    waits = settlement(outcomes, not_before=pa.array([AT, AT, AT, None])).waits

    micros = int(AT.timestamp() * 1e6)
    assert waits.schema == WAITS
    assert waits.column("message_id").to_pylist() == [0, 1]
    assert waits.column("not_before").to_pylist() == [micros, micros]
    delayed = settlement(["reload", "reload"], delay=[1.5, 2]).waits
    assert delayed.column("delay").to_pylist() == [1_500_000, 2_000_000]
    nulls = {name: pa.nulls(2) for name in ("not_before", "delay", "dead")}
    for columns in (nulls, {}):
        assert settlement(["reload", "sideline"], **columns).waits.num_rows == 0


def test_dead_messages_are_kept_and_others_are_not():
    waits = settlement(["sideline", "sideline", "delete"], dead=[True, False, True]).waits

    assert waits.column("message_id").to_pylist() == [0]


def test_settlements_are_merged_with_their_waits():
    one, other = (
        settlement(["reload"], delay=[1]),
        Settlement.of(pa.table({"_message_id": [7], "outcome": ["sideline"], "dead": [True]})),
    )

    assert Settlement.merge([one, other]).waits.column("message_id").to_pylist() == [0, 7]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"not_before": pa.array([AT.replace(tzinfo=None)])}, "time zone"),
        ({"not_before": ["soon"]}, "time zone"),
        ({"delay": ["1"]}, "use a number of seconds"),
        ({"delay": [-1.0]}, "negative"),
        ({"delay": [float("inf")]}, "longer"),
        ({"delay": [float("nan")]}, "negative"),
        ({"not_before": pa.array([1 << 60], pa.timestamp("s", "UTC"))}, "years 1 to 9999"),
        ({"not_before": pa.array([1 << 62], pa.timestamp("us", "UTC"))}, "years 1 to 9999"),
        ({"dead": ["yes"]}, "use booleans"),
        ({"dead": [True]}, "dead is for the outcome sideline"),
        ({"delay": [1.0], "not_before": pa.array([AT])}, "both not_before and delay"),
    ],
)
def test_what_makes_no_sense_is_refused(columns, told):
    with pytest.raises(BadOutcome, match=told):
        settlement(["reload"], **columns)
