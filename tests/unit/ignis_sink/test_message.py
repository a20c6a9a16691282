"""The entries of Spark's log, as a sink reads them."""

import pytest

from ignis_sink.message import read_entry

OURS = '{"consumer": "reader", "ticket": 5}'
OTHER = '{"logOffset":5}'


@pytest.fixture
def checkpoint(tmp_path):
    """A folder in which an entry can be written."""
    tmp_path.joinpath("offsets").mkdir()

    def write(*offsets, at=1):
        lines = ["v1", f'{{"batchTimestampMs":{at}}}', *offsets]
        tmp_path.joinpath("offsets", "3").write_text("\n".join(lines))
        return str(tmp_path)

    return write


def test_an_entry_is_itself_and_no_other(checkpoint):
    first = read_entry(checkpoint(OURS), 3)

    assert read_entry(checkpoint(OURS), 3) == first
    assert read_entry(checkpoint(OURS, at=2), 3)[0] != first[0]
    assert read_entry(checkpoint(OURS, at=2), 3)[1] == first[1]


@pytest.mark.parametrize(
    ("offsets", "tickets"),
    [
        ([OURS], OURS),
        ([OURS, OURS], f"{OURS}\n{OURS}"),
        ([OURS, OTHER], None),
        ([OURS, "-"], None),
        (["5"], None),
        ([], None),
    ],
)
def test_only_tickets_of_ours_say_what_a_batch_has(checkpoint, offsets, tickets):
    assert read_entry(checkpoint(*offsets), 3)[1] == tickets


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_checkpoint_in_a_folder_is_read(checkpoint, scheme):
    assert read_entry(scheme + checkpoint(OURS), 3)[0] is not None


@pytest.mark.parametrize("place", [None, "", "s3a://bucket/x", "hdfs://host/x", "/no/such/folder"])
def test_any_other_is_not(place):
    assert read_entry(place, 3) == (None, None)


def test_an_entry_that_is_not_there_is_none(checkpoint):
    assert read_entry(checkpoint(OURS), 4) == (None, None)
