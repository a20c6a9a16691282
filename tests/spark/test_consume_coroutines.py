"""`consume` with handlers written as `async def`, which Spark's workers run to their end."""

import asyncio

import pytest

from pyspark_ignis import batch_handler, consume
from tests.spark.consuming import Declined, Journal, counts, left_in, make_cases, reasons, run

pytestmark = pytest.mark.nightly


@pytest.fixture
def start(spark, tmp_path, checkpoint):
    """Consume the test's queue until it is empty."""

    def start(handler, **how):
        how |= {"path": tmp_path / "store", "checkpoint": checkpoint}
        run(consume(spark, "cases", handler, trigger={"availableNow": True}, **how))

    return start


def test_a_coroutine_decides_by_what_it_returns_or_raises(start, tmp_path):
    queue = make_cases(tmp_path, "true", "false", "none", "error", "ignorable", "late")
    journal = Journal(tmp_path / "journal")

    async def decide(message):
        word = message["what"]
        await asyncio.sleep(60 if word == "late" else 0.01)
        journal.note(message["number"])
        if word == "error":
            raise KeyError("customer")
        if word == "ignorable":
            raise Declined("no funds")
        return {"true": True, "false": False}.get(word)

    start(decide, ignorable=Declined, on_none="sideline", handler_timeout=3)

    # Each ran beyond its wait, except the one that was interrupted there.
    assert journal.seen() == dict.fromkeys(range(5), 1)
    assert left_in(queue) == []
    assert counts(queue, "deleted") == 2
    assert reasons(queue) == {
        "false": ("rejected", None),
        "none": ("undecided", "not a bool: the handler returned NoneType"),
        "error": ("exception", "KeyError: 'customer'"),
        "late": ("timeout", "not done after 3 s"),
    }


def test_the_calls_of_a_batch_wait_together(start, tmp_path):
    queue = make_cases(tmp_path, *"abcdef", shards=1)

    @batch_handler
    async def decide(batch):
        met = asyncio.Barrier(batch.num_rows)

        async def ask(word):
            # Ends only if all the others wait at the same time.
            await asyncio.wait_for(met.wait(), 30)
            return word != "d"

        return await asyncio.gather(*map(ask, batch["what"].to_pylist()))

    start(decide)

    assert left_in(queue) == []
    assert reasons(queue) == {"d": ("rejected", None)}
    assert counts(queue, "deleted") == 5
