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


def test_the_tickets_of_named_sources_are_the_same_in_any_order(tmp_path):
    """As Spark writes them with spark.sql.streaming.offsetLog.formatVersion=2."""
    other = '{"consumer": "another", "ticket": 2}'
    sources = [f"orders:{OURS}", f"mails:{other}"]
    tmp_path.joinpath("offsets").mkdir()
    for number, offsets in enumerate([sources, sources[::-1], [*sources, f"numbers:{OTHER}"]]):
        text = "\n".join(["v2", '{"batchTimestampMs":1}', *offsets])
        tmp_path.joinpath("offsets", str(number)).write_text(text)

    tickets = [read_entry(str(tmp_path), number)[1] for number in range(3)]

    assert tickets == [f"{other}\n{OURS}", f"{other}\n{OURS}", None]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_checkpoint_in_a_folder_is_read(checkpoint, scheme):
    assert read_entry(scheme + checkpoint(OURS), 3)[0] is not None


@pytest.mark.parametrize("place", [None, "", "s3a://bucket/x", "hdfs://host/x", "/no/such/folder"])
def test_any_other_is_not(place):
    assert read_entry(place, 3) == (None, None)


def test_an_entry_that_is_not_there_is_none(checkpoint):
    assert read_entry(checkpoint(OURS), 4) == (None, None)
