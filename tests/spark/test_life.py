"""A hundred thousand messages, of which some fail once and some for ever, up to the last's end.

3% fail on the first attempt, and 1% whenever they are handled. What comes back from the sideline is
handled again, so the 1% alone is left there, with its attempts and with a reason for each.
"""

import pytest

from pyspark_ignis import IgnisManager, Retry, constant, consume
from tests.books import audit
from tests.factories import make_queue, orders
from tests.spark.rig import AVAILABLE_NOW, Rig, counts, finish, wait_until

pytestmark = pytest.mark.nightly

MESSAGES = 100_000
ONCE, EVER = MESSAGES * 3 // 100, MESSAGES // 100
#: How often a message may fail before it stays in the sideline for good.
ATTEMPTS = 3


def handle(order):
    """The last two digits of a message's number decide its fate."""
    kind = order["number"] % 100
    if kind == 99:
        raise ValueError(f"never {order['number']}")
    return kind > 2 or order["_attempt"] > 0


def policy(seconds):
    return Retry(attempts=ATTEMPTS, backoff=constant(seconds))


def by_hand(rig: Rig, queue):
    """Consume and shovel in turn, until a shovel finds nothing that may be tried again."""
    shovelled = []
    while not shovelled or shovelled[-1]:
        finish(
            consume(
                rig.spark,
                "orders",
                handle,
                path=rig.path,
                checkpoint=rig.folder / "checkpoint",
                max_messages=30_000,
                trigger=AVAILABLE_NOW,
            )
        )
        shovelled.append(queue.shovel())
    assert shovelled == [ONCE + EVER, EVER, 0]


def by_a_manager(rig: Rig, queue):
    """The same, by itself: the query continues, and messages come back when they are due."""
    manager = IgnisManager(
        rig.spark,
        path=rig.path,
        handlers={"orders": {"handler": handle, "max_messages": 30_000}},
        checkpoints=rig.folder,
    )
    with manager:
        queue.change_settings(retry=policy(0.5))
        wait_until(lambda: counts(queue, "sidelined") == [ONCE + ATTEMPTS * EVER])
        tally = manager.stats()["orders"]
    assert (tally.published, tally.consumed) == (MESSAGES, MESSAGES - EVER)
    assert (tally.shovelled, tally.unconsumed) == (ONCE + (ATTEMPTS - 1) * EVER, 0)


@pytest.mark.parametrize("live", [by_hand, by_a_manager])
def test_only_what_fails_for_ever_is_left_and_each_failure_is_told(rig, live):
    queue = make_queue(rig.store, shards=4, retry=policy(600))
    ids = queue.load(orders(MESSAGES)).to_pylist()

    live(rig, queue)

    left = queue.browse(magazine="sideline")
    assert queue.browse().num_rows == 0
    assert sorted(left["number"].to_pylist()) == list(range(99, MESSAGES, 100))
    assert set(left["_attempt"].to_pylist()) == {ATTEMPTS}
    assert counts(queue, "deleted") == [MESSAGES - EVER]
    assert told(queue) == foretold(ids)
    audit(rig.store)


def told(queue):
    """Each failure: its message, the number of earlier failures, and the reason."""
    failures = queue.failures().select(["message_id", "attempt", "kind", "reason"])
    return sorted(zip(*(column.to_pylist() for column in failures.columns), strict=True))


def foretold(ids):
    """What should be told of the messages with these ids, which are in order of their numbers."""
    failures = [(ids[n], 0, "rejected", None) for n in range(MESSAGES) if n % 100 <= 2]
    for number in range(99, MESSAGES, 100):
        reason = f"ValueError: never {number}"
        failures += [(ids[number], attempt, "exception", reason) for attempt in range(ATTEMPTS)]
    return sorted(failures)
