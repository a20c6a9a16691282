"""The URI of a storage: which file system it means, and that no secret of it is ever shown."""

import traceback

import pyarrow.fs as pafs
import pytest

from queue_core.errors import BadOption
from queue_core.segments import filesystems
from queue_core.segments.filesystems import connect

SERVER = "endpoint_override=127.0.0.1:1&scheme=http"


@pytest.fixture
def told(monkeypatch):
    """What pyarrow was told of the server of a bucket."""
    told = {}
    monkeypatch.setattr(filesystems.pafs, "S3FileSystem", lambda **options: told.update(options))
    monkeypatch.setattr(filesystems.pafs, "resolve_s3_region", lambda bucket: f"that of {bucket}")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return told


def test_a_folder_and_a_uri_of_no_bucket_are_left_to_pyarrow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    for uri, folder in (("some/folder", "/some/folder"), (f"file://{tmp_path}", "")):
        filesystem, root = connect(uri)
        assert isinstance(filesystem, pafs.LocalFileSystem)
        assert root == f"{tmp_path}{folder}"


@pytest.mark.parametrize(
    ("uri", "root"),
    {
        "s3://bucket": "bucket",
        "s3://bucket/": "bucket",
        "s3://bucket/a/b/": "bucket/a/b",
        "s3://key:secret@bucket/a%20b": "bucket/a b",
    }.items(),
)
def test_a_bucket_and_the_folder_in_it(uri, root, told):
    assert connect(uri)[1] == root


def test_credentials_of_a_uri_are_unquoted_and_without_any_pyarrow_looks_for_some(told):
    connect("s3://key:se%2Fcret%40@bucket/a")
    assert (told["access_key"], told["secret_key"]) == ("key", "se/cret@")

    connect("s3://bucket/a")
    assert (told["access_key"], told["secret_key"]) == (None, None)


def test_a_bucket_of_amazon_tells_its_region_unless_the_uri_does(told, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "where we are, which is another matter")

    connect("s3://bucket/a")
    assert told["region"] == "that of bucket"
    connect("s3://bucket/a?region=eu-west-1")
    assert told["region"] == "eu-west-1"


def test_the_environment_may_name_another_server(told, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio:9000/")
    connect("s3://bucket/a")
    assert (told["endpoint_override"], told["scheme"]) == ("minio:9000", "https")
    assert told["region"] == "us-east-1"

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://of-s3:9000")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "here")
    connect("s3://bucket/a")
    assert (told["endpoint_override"], told["scheme"]) == ("of-s3:9000", "http")
    assert told["region"] == "here"


def test_the_uri_goes_before_the_environment(told, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio:9000")

    connect(f"s3://bucket/a?{SERVER}&region=there")

    assert (told["endpoint_override"], told["scheme"]) == ("127.0.0.1:1", "http")
    assert told["region"] == "there"


@pytest.mark.parametrize(
    ("uri", "said"),
    {
        "s3:///folder": "the URI names no bucket; use s3://bucket/prefix",
        "s3://key:secret@": "the URI names no bucket",
        "s3://key:secret@/folder": "the URI names no bucket",
        "s3://key:secret@buck et/a": "the URI names no bucket",
        "s3://key:secret@bucket/a?regoin=x": "'regoin'; did you mean 'region'?",
        "s3://key:secret@bucket/a?endpoint_override=%00&scheme=gopher": "scheme",
        "nothing://key:secret@host/a": "nothing://***@host/a",
        "gs://key:secret@bu cket/a": r"gs://***@bu cket/a",
    }.items(),
)
def test_a_uri_that_is_none_is_refused_without_its_secret(uri, said):
    with pytest.raises(BadOption) as error:
        connect(uri)

    assert said in str(error.value)
    assert "key:secret" not in "".join(traceback.format_exception(error.value))
