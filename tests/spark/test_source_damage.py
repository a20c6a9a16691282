"""A segment that is torn, altered or missing: its name is told, and the rest stays readable."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from tests.factories import make_queue, orders
from tests.spark.rig import counts

ROWS = 20_000


def tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 3])


def alter(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.fixture
def queue(rig):
    """A queue whose messages are in two segment files."""
    queue = make_queue(rig.store)
    queue.load(orders(ROWS))
    queue.load(orders(ROWS, first=ROWS))
    return queue


@pytest.mark.spoiled
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(tear, marks=pytest.mark.nightly, id="torn"),
        pytest.param(alter, marks=pytest.mark.nightly, id="altered"),
        pytest.param(Path.unlink, id="missing"),
    ],
)
def test_a_query_ends_with_the_name_of_the_segment_and_then_goes_on_without_it(rig, queue, spoil):
    location = damaged(rig, spoil)
    stream = rig.source(maxMessagesPerTrigger=ROWS).select("number")
    with pytest.raises(StreamingQueryException, match=rf"DamagedSegment.*{location}"):
        rig.numbers(stream)
    assert rig.numbers(stream) == [list(range(ROWS, 2 * ROWS))]
    assert counts(queue, "damaged", "deleted", "in_flight") == [ROWS, ROWS, 0]


def damaged(rig, spoil) -> str:
    """Spoil the segment that is read first; return its location."""
    slices = rig.store.view("slices").to_pylist()
    location = min(slices, key=lambda piece: piece["position"])["location"]
    spoil(Path(rig.path) / location)
    return str(location)
