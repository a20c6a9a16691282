"""The rules of a queue's settings as SQL, for each verb that selects messages."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from queue_core.selection.queue_rules import of_expiry, of_firing, of_moving
from queue_core.selector import Selector
from queue_core.values.model import Magazine
from queue_core.values.schema import AGE, NOW
from tests.factories import make_info

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MOMENT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("key", pa.string()), ("un`til", MOMENT), ("since", MOMENT), ("urgency", pa.int32())]
)
#: The columns of a scan.
SCANNED = pa.schema([*SCHEMA, (NOW, pa.timestamp("us")), (AGE, pa.float64())])


def queue(**settings):
    return make_info(SCHEMA, "key", name="orders", **settings)


def meets(condition, **row):
    """Whether a row meets a condition at noon."""
    row = dict.fromkeys(SCANNED.names) | {NOW: NOON.replace(tzinfo=None)} | row
    rows = pa.Table.from_pylist([row], SCANNED)
    return Selector.parse(condition, SCANNED).mask(rows).to_pylist() == [True]


@pytest.mark.parametrize(
    ("until", "expired"), [(NOON - HOUR, True), (NOON, True), (NOON + HOUR, False), (None, False)]
)
def test_a_message_expires_at_its_time(until, expired):
    settings = {"expires_at": "un`til"}
    assert meets(of_expiry(queue(**settings)).condition, **{"un`til": until}) is expired
    assert meets(of_moving(queue(**settings)).condition, **{"un`til": until}) is not expired
    firing = of_firing(queue(**settings), Magazine.MAIN)
    assert meets(firing.condition, **{"un`til": until}) is not expired
    assert not of_firing(queue(**settings), Magazine.SIDELINE)


@pytest.mark.parametrize(
    ("since", "held"), [(NOON - HOUR, False), (NOON, False), (NOON + HOUR, True), (None, False)]
)
def test_a_message_is_held_until_its_time_except_from_a_shovel(since, held):
    held_queue = queue(hold_until="since")
    assert meets(of_firing(held_queue, Magazine.MAIN).condition, since=since) is not held
    assert not of_moving(held_queue)
