"""The folder of a backup: every file is checked, and other files are not removed."""

import io

import pyarrow as pa
import pytest

from queue_core.errors import BadOption, DamagedBackup
from queue_core.upkeep.backup.folder import BackupFolder
from queue_core.upkeep.backup.manifest import Manifest

ROWS = pa.record_batch({"id": [1, 2, 3]})
SEGMENT = "segments/orders/00000000000000000000000000000000.arrow"


def written(path, store="a", name="catalog-1", segments=(SEGMENT,)):
    """A folder with one table and some segments."""
    folder = BackupFolder(path)
    table = folder.write_table(name, "slices", ROWS.schema, [ROWS, ROWS])
    copied = {at: folder.copy_in(io.BytesIO(at.encode()).read, at) for at in segments}
    listed = folder.write_segments(name, copied)
    manifest = Manifest(
        store=store,
        format=2,
        taken_at=0,
        folder=name,
        tables={"slices": table},
        last_ids={},
        segments=listed,
    )
    folder.finish(manifest, segments)
    return folder


def test_what_was_written_is_read(tmp_path):
    folder = written(tmp_path)
    manifest = folder.manifest()

    folder.check(manifest, "slices")
    assert manifest.tables["slices"].rows == 6
    assert pa.Table.from_batches(folder.table(manifest, "slices")).num_rows == 6
    ((location, (size, _)),) = folder.segments(manifest).items()
    assert location == SEGMENT
    assert folder.holds(SEGMENT, size)
    assert not folder.holds(SEGMENT, size + 1)
    with folder.opened(SEGMENT) as source:
        assert source.read() == SEGMENT.encode()


def test_the_next_backup_takes_the_place_of_the_first(tmp_path):
    written(tmp_path)
    other = SEGMENT.replace("0", "1")
    folder = written(tmp_path, name="catalog-2", segments=[other])

    assert folder.manifest().folder == "catalog-2"
    assert not (tmp_path / "catalog-1").exists()
    assert [str(at.relative_to(tmp_path)) for at in tmp_path.rglob("segments/*/*")] == [other]


@pytest.mark.parametrize("name", ["slices", "segment files"])
def test_an_altered_file_is_refused(tmp_path, name):
    folder = written(tmp_path)
    file = tmp_path / "catalog-1" / f"{name}.arrow"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    manifest = folder.manifest()

    with pytest.raises(DamagedBackup, match=name):
        read(folder, manifest)


def read(folder, manifest):
    folder.check(manifest, "slices")
    folder.segments(manifest)


def test_a_missing_segment_is_refused(tmp_path):
    folder = written(tmp_path)
    (tmp_path / SEGMENT).unlink()

    with pytest.raises(DamagedBackup, match="is missing"), folder.opened(SEGMENT):
        pass


def test_a_folder_is_for_backups_of_one_store(tmp_path):
    assert BackupFolder(tmp_path / "new").of_store("a") is None
    folder = written(tmp_path / "used")
    assert folder.of_store("a") == folder.manifest()
    with pytest.raises(BadOption, match="of another store, a"):
        folder.of_store("b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    with pytest.raises(BadOption, match="holds no backup"):
        BackupFolder(tmp_path / "full").of_store("a")
    with pytest.raises(BadOption, match="no complete backup"):
        BackupFolder(tmp_path / "full").manifest()


def test_a_write_that_fails_leaves_no_file(tmp_path):
    def read(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        BackupFolder(tmp_path).copy_in(read, SEGMENT)
    assert not (tmp_path / SEGMENT).exists()
