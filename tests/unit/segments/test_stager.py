"""Writing takes the same memory for segments of any size, and copies no rows without need."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import SchemaMismatch, StorageUnavailable
from queue_core.segments import stager
from queue_core.segments.shard_hash import shards_of
from queue_core.segments.stager import MOST, RUN_BYTES, THROUGH_BYTES, Stager, kinds
from queue_core.segments.storage import Storage
from tests.factories import make_info
from tests.unit.segments.large_segments import peak_memory, stage


@pytest.mark.parametrize("key", [None, "key"])
def test_writing_takes_no_more_for_a_larger_segment(tmp_path: Path, key: str | None) -> None:
    peaks = []
    for rows in (400_000, 1_000_000):
        with peak_memory() as measured:
            staged = stage(tmp_path, rows, key)
        assert sum(segment.rows for segment in staged) == rows
        peaks += measured
    assert peaks[1] < 1.2 * peaks[0]
    # What waits, its copy in one piece, and the same rows sorted.
    assert peaks[1] < 4 * RUN_BYTES


SCHEMA = pa.schema([("key", pa.int64()), ("number", pa.int64())])
MANY = THROUGH_BYTES // 16


def of_shards(shards, first, count):
    """Rows whose keys are of some of two shards."""
    keys = np.arange(100)
    keys = keys[np.isin(shards_of(pa.array(keys), 2), shards)]
    columns = [pa.array(np.resize(keys, count)), pa.array(np.arange(first, first + count))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def staged(tmp_path, batches, key="key", *, keep_order=False, **settings):
    """Staged batches: segments, numbers as they stand in the files, rows of chunks, and order."""
    storage = Storage.open(str(tmp_path / "store"))
    stager = Stager(storage, make_info(SCHEMA, key, **settings), keep_order=keep_order)
    for batch in batches:
        stager.add(batch)
    segments = stager.finish()
    numbers, chunks = [], []
    for segment in segments:
        with pa.OSFile(str(tmp_path / "store" / segment.location)) as file:
            table = pa.ipc.open_file(file).read_all()
        numbers += table.column("number").to_pylist()
        chunks += [chunk.rows for chunk in segment.chunks]
    return segments, numbers, chunks, stager.order


@pytest.mark.parametrize("key", ["key", None])
def test_many_rows_of_one_shard_are_one_run_with_what_comes_after_them(tmp_path, key):
    batches = [of_shards([1], 0, MANY), of_shards([1], MANY, MANY), of_shards([1], 2 * MANY, 9)]

    (segment,), numbers, chunks, order = staged(tmp_path, batches, key, keep_order=True)

    ((run),) = segment.runs
    assert (run.shard, run.start, run.stop) == (1 if key else None, 0, 2 * MANY + 9)
    assert chunks == [MANY, MANY, 9]
    assert numbers == np.concatenate(order).tolist() == list(range(2 * MANY + 9))


def test_rows_stay_in_order_if_some_wait_and_others_could_be_written(tmp_path):
    counts = [9, MANY, MANY, MANY]
    shards = [[0, 1], [1], [0, 1], [0]]
    firsts = np.cumsum([0, *counts]).tolist()
    batches = [of_shards(*each) for each in zip(shards, firsts[:-1], counts, strict=True)]
    rows = pa.Table.from_batches(batches)

    (segment,), numbers, _, order = staged(tmp_path, batches, keep_order=True)

    found = shards_of(rows.column("key").combine_chunks(), 2)
    expected = [np.flatnonzero(found == shard).tolist() for shard in (0, 1)]
    assert [numbers[run.start : run.stop] for run in segment.runs] == expected
    assert np.array(numbers)[np.concatenate(order)].tolist() == list(range(firsts[-1]))


def test_a_shard_can_follow_another_without_waiting(tmp_path):
    few = of_shards([0, 1], 2 * MANY, 8)
    of_zero = int((shards_of(few.column("key"), 2) == 0).sum())

    (segment,), numbers, _, _ = staged(
        tmp_path, [of_shards([1], 0, MANY), of_shards([0], MANY, MANY), few]
    )

    assert [(run.shard, run.start, run.stop) for run in segment.runs] == [
        (1, 0, MANY),
        (0, MANY, 2 * MANY + of_zero),
        (1, 2 * MANY + of_zero, 2 * MANY + 8),
    ]
    assert sorted(numbers) == list(range(2 * MANY + 8))


def test_many_rows_of_one_shard_have_statistics_all_the_same(tmp_path):
    (segment,), _, _, _ = staged(tmp_path, [of_shards([1], 0, MANY)], attributes=("number",))

    assert [run.stats is None for run in segment.runs] == [False]


def test_a_null_among_many_keys_of_one_shard_is_refused(tmp_path):
    rows = of_shards([1], 0, MANY)
    keys = pa.concat_arrays([rows.column("key")[:-1], pa.nulls(1, pa.int64())])
    batch = pa.RecordBatch.from_arrays([keys, rows.column("number")], schema=SCHEMA)

    with pytest.raises(SchemaMismatch, match="is null in 1 rows"):
        staged(tmp_path, [batch])


def test_what_is_wrong_with_rows_is_told_though_no_file_can_be_removed(tmp_path, monkeypatch):
    def refuse(*_):
        raise StorageUnavailable("the server is away")

    monkeypatch.setattr(stager, "MAX_SEGMENT_ROWS", MANY)
    monkeypatch.setattr(Storage, "remove", refuse)
    rows = of_shards([1], 0, MANY)
    keys = pa.concat_arrays([rows.column("key")[:-1], pa.nulls(1, pa.int64())])
    wrong = pa.RecordBatch.from_arrays([keys, rows.column("number")], schema=SCHEMA)
    writer = Stager(Storage.open(str(tmp_path / "store")), make_info(SCHEMA, "key"))

    # The first ones are in a file that is complete, and the next ones in one that is not.
    with pytest.raises(SchemaMismatch, match="is null in 1 rows"):
        writer.write(pa.Table.from_batches([rows, rows, wrong]))


def test_rows_are_told_apart_by_every_combination_of_values() -> None:
    rows = pa.table({"a": ["x", "y", "x", None, "y"], "b": [1, 1, 2, 1, 1]})
    assert [found.tolist() for found in kinds(rows, ["a", "b"])] == [[0], [1, 4], [2], [3]]
    assert [found.tolist() for found in kinds(rows, ["b"])] == [[0, 1, 3, 4], [2]]


def test_more_kinds_than_are_told_apart_are_left_together() -> None:
    rows = pa.table({"a": range(MOST + 1), "b": [n % 9 for n in range(MOST + 1)]})
    assert [len(found) for found in kinds(rows, ["a"])] == [MOST + 1]
    pairs = pa.table({"a": [n // 9 for n in range(81)], "b": [n % 9 for n in range(81)]})
    assert [len(found) for found in kinds(pairs, ["a", "b"])] == [81]
    rows = rows.slice(0, MOST)
    assert len(kinds(rows, ["a"])) == MOST
    assert len(kinds(rows.take([*range(MOST), 0]), ["a"])[0]) == 2
