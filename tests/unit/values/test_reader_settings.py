"""Which settings a subscription can have, and which only it can have."""

import pytest

from queue_core.errors import BadOption
from queue_core.values.reader_settings import check_loadable, check_readable, readable
from queue_core.values.settings import QueueSettings


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"log": "7 days"}, "log: a subscription cannot"),
        ({"max_size": 5}, "max_size: a subscription cannot"),
        ({"late": "1 day", "priority": "urgency"}, "use when_late='drop'"),
    ],
)
def test_a_subscription_cannot_have_what_decides_loads_or_frees_nothing(given, text):
    with pytest.raises(BadOption, match=text):
        check_readable(QueueSettings.of(given))
    check_readable(QueueSettings.of({"late": "1 day", "priority": "n", "when_late": "drop"}))


@pytest.mark.parametrize("given", [{"selector": "n > 1"}, {"late": "1 day"}])
def test_only_a_subscription_can_choose_and_be_late(given):
    with pytest.raises(BadOption, match="only a subscription can have it"):
        check_loadable(QueueSettings.of(given))
    check_readable(QueueSettings.of(given))


def test_a_copy_keeps_what_does_not_concern_loads():
    given = {"log": "7 days", "dedup": "n", "late": "1 day", "concurrency": 3}
    assert readable(QueueSettings.of(given)) == QueueSettings.of({"concurrency": 3})
