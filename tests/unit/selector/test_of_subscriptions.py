"""Selectors of subscriptions: they see a message as it was loaded."""

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selector.of_subscriptions import parsed

SCHEMA = pa.schema([("amount", pa.int64())])


def test_it_may_name_what_a_message_has_in_the_log():
    condition = parsed("amount > 100 AND _message_id > 0 AND _shard = 1", SCHEMA)
    assert condition.columns == {"amount", "_message_id", "_shard"}


@pytest.mark.parametrize("column", ["_attempt", "_fired_at", "_age", "_now", "other"])
def test_it_may_not_name_what_depends_on_a_firing(column):
    with pytest.raises(BadSelector, match=column):
        parsed(f"{column} IS NULL", SCHEMA)
