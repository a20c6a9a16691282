"""The proxy of the soak passes requests on, or answers as told."""

import pyarrow.fs as pafs
import pytest

from queue_core.segments.filesystems import connect
from tests.soak.proxy import proxy

pytestmark = pytest.mark.s3
#: More than the client sends in one piece.
CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def bad(object_store):
    """The controls of a proxy, and a bucket behind it."""
    with proxy(object_store.endpoint, 1) as (controls, endpoint):
        controls.share = 1.0
        yield controls, connect(object_store.bucket().replace(object_store.endpoint, endpoint))


def write(files, root, name, content=CONTENT):
    with files.open_output_stream(f"{root}/{name}") as sink:
        sink.write(content)


def read(files, root, name):
    with files.open_input_stream(f"{root}/{name}") as source:
        return source.read()


def test_what_is_written_can_be_read(bad):
    _, (files, root) = bad
    write(files, root, "large")
    write(files, root, "small", b"token")

    assert read(files, root, "large") == CONTENT
    assert read(files, root, "small") == b"token"
    found = files.get_file_info(pafs.FileSelector(root))
    assert sorted(info.size for info in found) == [5, len(CONTENT)]


def test_a_file_that_is_there_is_missing(bad):
    controls, (files, root) = bad
    write(files, root, "file")
    controls.mode = "missing"

    with pytest.raises(FileNotFoundError):
        read(files, root, "file")
    assert controls.hits


@pytest.mark.parametrize(
    "mode", ["cut", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("refuse", "busy"))]
)
def test_a_request_fails_however_often_it_is_repeated(bad, mode):
    controls, (files, root) = bad
    write(files, root, "file")
    controls.mode = mode

    with pytest.raises(OSError, match="AWS Error"):
        read(files, root, "file")
    assert controls.hits > 1
    controls.mode = "pass"
    assert read(files, root, "file") == CONTENT
