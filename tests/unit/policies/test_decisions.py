"""What each decision does to the new and to the queued message."""

import pytest

from queue_core.policies.decisions import Decision


@pytest.mark.parametrize(
    ("decision", "queues", "deletes"),
    [
        (Decision.DONT_CARE, False, False),
        (Decision.IGNORE, False, False),
        (Decision.QUEUE, True, False),
        (Decision.IGNORE_AND_DELETE, False, True),
        (Decision.QUEUE_AND_DELETE, True, True),
    ],
)
def test_a_decision_queues_the_new_message_or_deletes_the_queued_one(decision, queues, deletes):
    assert (decision.queues, decision.deletes) == (queues, deletes)


def test_a_decision_is_its_text():
    assert Decision.QUEUE_AND_DELETE == "queue and delete"
    assert Decision("ignore") is Decision.IGNORE
