"""Writing takes the same memory for segments of any size."""

from pathlib import Path

import pytest

from queue_core.segments.stager import RUN_BYTES
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
