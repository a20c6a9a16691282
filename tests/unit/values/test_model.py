"""The values that messages travel in: narrowed, placed and counted."""

import pytest

from queue_core.errors import BadOption
from queue_core.values.model import (
    Consumer,
    Magazine,
    Part,
    ReadPlan,
    Run,
    ScanTask,
    Staged,
    Ticket,
    TicketRange,
    magazine_of,
)
from queue_core.values.rows import Rows
from tests.factories import make_rows, make_segment, make_slice


def staged(*runs):
    return Staged(
        location=None, data=b"", rows=10, bytes=100, chunks=(), runs=runs, schema_version=1
    )


def test_magazines_are_named():
    assert magazine_of("main") is Magazine.MAIN
    assert magazine_of("sideline") is Magazine.SIDELINE
    with pytest.raises(BadOption, match="did you mean 'sideline'"):
        magazine_of("sidelin")


def test_a_run_is_narrowed_to_some_of_its_rows():
    run = Run(shard=0, start=2, stop=8)
    left = run.narrowed(make_rows(0, 3, 5, 9))

    assert len(run) == 6
    assert (left.start, left.stop, len(left)) == (3, 6, 2)
    assert len(left.narrowed(make_rows(5))) == 1


def test_a_narrowed_segment_loses_the_runs_without_rows():
    whole = staged(Run(shard=0, start=0, stop=5), Run(shard=1, start=5, stop=10))
    left = whole.narrowed(make_rows(6, 7))

    assert (whole.messages, left.messages) == (10, 2)
    assert [run.shard for run in left.runs] == [1]


def test_only_undecided_runs_get_a_shard():
    decided = staged(Run(shard=None, start=0, stop=5), Run(shard=1, start=5, stop=10)).in_shard(4)

    assert [run.shard for run in decided.runs] == [4, 1]


def test_a_slice_places_its_rows_and_shares_its_bytes():
    piece = make_slice(make_rows(3, 4, 6), position=100, bytes=90)

    assert [piece.place_of(row) for row in (3, 4, 6)] == [100, 101, 103]
    assert piece.end == 104
    assert piece.bytes_of(make_rows(4)) == 30


def test_a_segment_without_a_file_has_a_name_too():
    assert make_segment(7).name == "inlined/7"
    assert make_segment(location="segments/a.arrow").name == "segments/a.arrow"


def test_a_plan_counts_its_rows_and_hides_its_storage():
    part = Part(rows=Rows(0, 4), attempts=0, fired_at=None)
    task = ScanTask(queue="orders", shard=0, segment=make_segment(), parts=(part, part))
    plan = ReadPlan(storage="s3://user:secret@bucket", schema=b"", tasks=(task,))

    assert (len(task), len(plan)) == (8, 8)
    assert "secret" not in repr(plan)


def test_the_range_of_a_ticket_is_that_ticket_alone():
    ticket = Ticket(consumer=Consumer(id=3, name="c", epoch=1), number=5, fired_at=0, messages=1)

    assert TicketRange.of(ticket) == TicketRange(ticket.consumer, after=4, upto=5)
