"""Columns with a role: found by settings or by name, and refused when they do not suit it."""

from datetime import datetime

import pyarrow as pa
import pytest

from queue_core.errors import BadOption
from queue_core.values.column_roles import check, described, expiring, holding, stamped
from queue_core.values.schema import EXPIRES_AT, HOLD_UNTIL
from queue_core.values.settings import QueueSettings

MOMENT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("key", pa.string()), ("until", MOMENT), ("since", MOMENT), ("urgency", pa.int32())]
)


def test_a_setting_names_the_column_or_else_its_own_name_does():
    named = QueueSettings(expires_at="until", hold_until="since")
    by_name = pa.schema([(EXPIRES_AT, MOMENT), (HOLD_UNTIL, MOMENT)])

    assert (expiring(named, SCHEMA), holding(named, SCHEMA)) == ("until", "since")
    assert expiring(QueueSettings(), by_name) == EXPIRES_AT
    assert holding(QueueSettings(), by_name) == HOLD_UNTIL
    assert expiring(QueueSettings(), SCHEMA) is None
    assert holding(QueueSettings(), SCHEMA) is None


def test_statistics_are_kept_of_each_column_that_has_a_role_once():
    settings = QueueSettings(
        attributes=("urgency", "key"), group="key", priority="urgency", expires_at="until"
    )

    assert described(settings, SCHEMA) == ("urgency", "key", "until")
    assert described(QueueSettings(), SCHEMA) == ()


def test_only_nulls_are_stamped():
    rows = pa.table({"until": pa.array([5, None], MOMENT), "key": ["a", "b"]})

    stamps = stamped(rows, "until", 7).column("until")

    assert stamps.cast(pa.int64()).to_pylist() == [5, 7]
    assert stamps.type == MOMENT
    assert isinstance(stamps[0].as_py(), datetime)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attributes": ("urgncy",)}, "no column 'urgncy'; did you mean 'urgency'"),
        ({"categories": ("nobody",)}, "no column 'nobody'"),
        ({"expires_at": "key"}, "the column is string; use a column of timestamps"),
        ({"hold_until": "urgency"}, "the column is int32; use a column of timestamps"),
        ({"priority": "key"}, "the column is string; use a column of numbers"),
        ({"group": "until"}, "the key of the queue, which picks the shard, is 'key'"),
        ({"priority_aging": 5.0}, "set priority too"),
    ],
)
def test_a_column_that_does_not_suit_its_role_is_refused(settings, message):
    with pytest.raises(BadOption, match=message):
        check(QueueSettings(**settings), SCHEMA, "key")


def test_columns_that_suit_their_roles_are_accepted():
    settings = QueueSettings(
        attributes=("key",),
        group="key",
        expires_at="until",
        hold_until="since",
        priority="urgency",
        priority_aging=5.0,
    )

    check(settings, SCHEMA, "key")
