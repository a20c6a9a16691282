"""Messages of several segments become one, under their ids and at their places."""

import pyarrow as pa
import pytest

from queue_core.segments import stager
from queue_core.segments.reader import read_table
from queue_core.segments.rewriter import RewriteGroup, kept_columns, repack
from queue_core.segments.storage import Storage
from queue_core.values.ids import first_id
from queue_core.values.model import Part, QueueInfo, ReadPlan, ScanTask
from queue_core.values.rows import Rows
from queue_core.values.schema import serialize
from queue_core.values.settings import QueueSettings
from tests.factories import ORDERS, chunked, make_segment, make_slice, orders

QUEUE = QueueInfo(
    id=1,
    name="orders",
    shards=2,
    key="customer",
    schema=ORDERS,
    schema_version=3,
    settings=QueueSettings(attributes=("number",)),
    created_at=0,
)

#: Two neighbours with a gap of places between them and one within the first; and two that
#: interleave. The places of the groups begin at 100 and at 500.
APART = RewriteGroup(
    (
        make_slice((0, 1, 4), position=100, segment_id=7, loaded_at=20, moved_at=21),
        make_slice((10, 11), position=107, segment_id=8, loaded_at=10, moved_at=30),
    )
)
INTERLEAVED = RewriteGroup(
    (
        make_slice((0, 2), position=500, segment_id=9),
        make_slice((1, 3), position=501, segment_id=9),
    )
)
#: The ids of their messages, in the order of their places.
IDS = [
    [first_id(7), first_id(7) + 1, first_id(7) + 4, first_id(8) + 10, first_id(8) + 11],
    [first_id(9), first_id(9) + 1, first_id(9) + 2, first_id(9) + 3],
]


def messages():
    ids = [number for group in IDS for number in group]
    kept = pa.table(
        {"_message_id": ids, "_loaded_at": pa.array(range(len(ids)), pa.timestamp("us", "UTC"))}
    )
    rows = orders(len(ids))
    for name in kept.column_names:
        rows = rows.append_column(name, kept.column(name))
    return rows.select(kept_columns(QUEUE))


@pytest.fixture(params=["inlined", "file"])
def repacked(request, tmp_path, monkeypatch):
    if request.param == "file":
        monkeypatch.setattr(stager, "INLINE_BYTES", 0)
        monkeypatch.setattr(stager, "CHUNK_ROWS", 2)
    storage = Storage.open(str(tmp_path))
    staged, groups = repack(storage, QUEUE, [APART, INTERLEAVED], messages())
    assert (staged.location is None) == (request.param == "inlined")
    return storage, staged, groups


def test_rows_are_as_far_apart_as_their_places(repacked):
    _, staged, (apart, interleaved) = repacked

    assert apart.rows.tolist() == [0, 1, 4, 7, 8]
    # The second group follows the span of the first.
    assert interleaved.rows.tolist() == [9, 10, 11, 12]
    assert (APART.position, APART.span, APART.messages, APART.bytes) == (100, 9, 5, 50)
    assert (INTERLEAVED.position, INTERLEAVED.span, INTERLEAVED.messages) == (500, 4, 4)
    assert staged.rows == APART.span + INTERLEAVED.span
    # The chunks cover all rows without a gap.
    assert sum(chunk.rows for chunk in staged.chunks) == staged.rows
    assert (len(staged.chunks) > 1) == (staged.location is not None)
    for one in (apart, interleaved):
        assert one.piece.position == one.group.position
        assert one.piece.rows.numbers().tolist() == one.rows.tolist()
        old = {
            first_id(piece.segment_id) + row: piece.place_of(row)
            for piece in one.group.pieces
            for row in piece.rows.numbers().tolist()
        }
        new = dict(zip(one.ids.tolist(), map(one.piece.place_of, one.rows.tolist()), strict=True))
        assert new == old


def test_a_slice_inherits_the_times_of_its_group_and_its_share_of_the_bytes(repacked):
    _, staged, (apart, _) = repacked

    assert (apart.piece.loaded_at, apart.piece.moved_at) == (10, 30)
    assert apart.piece.bytes == staged.bytes * 5 // 9
    assert apart.piece.stats == '{"number":[0,4,0,5,[0,1,2,3,4]]}'


def test_the_messages_are_read_back_under_their_ids(repacked):
    storage, staged, groups = repacked
    segment = make_segment(
        20,
        location=staged.location,
        data=staged.data,
        schema_version=3,
        chunks=chunked(staged.chunks),
        compacted=True,
    )
    tasks = tuple(
        ScanTask(
            queue="orders",
            shard=0,
            segment=segment,
            parts=(Part(rows=Rows.of_numbers(one.rows), attempts=0, fired_at=None),),
        )
        for one in groups
    )
    plan = ReadPlan(storage=storage.uri, schema=serialize(ORDERS), tasks=tasks)

    found = read_table(plan, kept_columns(QUEUE))

    assert found.equals(messages().cast(found.schema))
