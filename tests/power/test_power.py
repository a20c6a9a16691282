"""The short form of ``python -m tests.power``, and what it finds where nothing is synced."""

import random

import pytest

from tests.power import disk, recording
from tests.power.campaign import run, trial
from tests.power.recording import Operation

needs_strace = pytest.mark.skipif(recording.STRACE is None, reason="needs strace")


@pytest.mark.nightly
@pytest.mark.crash
@needs_strace
def test_a_failure_of_power_breaks_no_promise_and_a_missing_sync_would(tmp_path):
    operations = recording.recorded(tmp_path)
    assert len(operations) > 1000
    found = trial(operations, tmp_path, each=1, seed=7, share=0.02)
    assert found.disks > 10
    assert not found.faults
    for forgotten in (".arrow", "catalog.db-wal"):
        left = [o for o in operations if not (o.kind == "sync" and o.path.endswith(forgotten))]
        assert len(left) < len(operations)
        assert trial(left, tmp_path, each=1, seed=7, share=0.01).faults


@pytest.mark.crash
@pytest.mark.nightly
@needs_strace
def test_hundreds_of_failures_of_power_break_no_promise(tmp_path):
    assert not run(tmp_path, each=1, seed=8, share=0.2).faults


def test_a_disk_keeps_what_was_synced_and_any_part_of_the_rest():
    written = disk.Disk("/d")
    for operation in (
        Operation("create", "/d/a"),
        Operation("write", "/d/a", 0, b"1" * 1024),
        Operation("sync", "/d/a"),
        Operation("sync", "/d"),
        Operation("write", "/d/a", 512, b"2" * 1024),
        Operation("create", "/d/b"),
        Operation("rename", "/d/b", to="/d/c"),
    ):
        written.apply(operation)
    images = [written.after(random.Random(seed)) for seed in range(400)]
    assert {image["/d/a"][:512] for image in images} == {b"1" * 512}
    assert {image["/d/a"][512:] for image in images} == {
        b"1" * 512,
        b"2" * 1024,
        b"2" * 512,
        b"1" * 512 + b"2" * 512,
    }
    assert {frozenset(image) - {"/d/a"} for image in images} == {
        frozenset(),
        frozenset(["/d/b"]),
        frozenset(["/d/c"]),
    }
