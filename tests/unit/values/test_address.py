"""Where a store is: one folder, or a catalog and a storage."""

import pickle
import re
from pathlib import Path

import pytest

from queue_core.catalog import dialect
from queue_core.errors import BadOption
from queue_core.values.address import VARIABLES, Address, masked

POSTGRES = "postgresql+psycopg://me@host/ignis"


@pytest.mark.parametrize("path", ["store", "./store", Path("store"), Path("store").absolute])
def test_a_folder_holds_both_catalog_and_segments(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = f"{tmp_path}/store"

    address = Address.of(path() if callable(path) else path)

    assert address == Address(f"sqlite:///{folder}/catalog.db", folder)
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize("uri", ["file:///some/fol%20der", "file:/some/fol%20der"])
def test_a_file_uri_is_a_folder(uri):
    assert Address.of(uri) == Address("sqlite:////some/fol der/catalog.db", "/some/fol der")


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")

    assert Address.of("~/shop").storage == "/home/ada/shop"
    assert Address.of("/tmp/a folder").storage == "/tmp/a folder"
    assert Address.of(catalog=POSTGRES, storage="~/shop").storage == "/home/ada/shop"
    assert Address.of(catalog="sqlite:///~/a.db", storage="s").catalog == "sqlite:////home/ada/a.db"
    assert Address.of(catalog=POSTGRES, storage=Path("/a/b")).storage == "/a/b"
    assert Address.of(catalog=POSTGRES, storage="file:/a%20b").storage == "/a b"


def test_a_folder_is_the_one_of_the_working_directory_at_its_time(tmp_path, monkeypatch):
    """Two stores whose addresses read alike are two."""
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        address = Address.of(catalog="sqlite:///a.db", storage="a folder")

        assert address == (f"sqlite:///{folder}/a.db", f"{folder}/a folder")
        assert Address.of(catalog=address.catalog, storage=address.storage) == address


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (" ", "begins or ends with a blank"),
        ("/tmp/store ", "begins or ends with a blank"),
        (":memory:", "a store needs a folder"),
        ("dbfs:/store", "no 'dbfs:'; a mounted one is /dbfs/"),
        ("C:\\store", "a folder of Windows"),
        ("hdfs://host/store", "storage=hdfs://host/store"),
        ("s3a://bucket/store", "storage=s3://bucket/store"),
        ("s3://key:secret@bucket/prefix", "storage=s3://***@bucket/prefix"),
        ("", "path="),
        ("~nobody-has-this-name/store", "names no home folder"),
        ("sqlite:///x.db", "pass catalog=sqlite:///x.db and storage=some/folder"),
        ("postgresql://me@host/x", "pass catalog=postgresql+psycopg://… and storage=s3://"),
        ("postgresql+psycopg://me@host/x", "pass catalog=postgresql+psycopg://…"),
        ("abfss://box@account/x", "storage=abfss://box@account/x"),
        ("dbfs:///x", "is not a local folder; a mounted one is /dbfs/…"),
        ("http://host/x", "is not a local folder; a storage is a folder, or one of s3://"),
        ("wasbs://box@account/x", "is not a local folder; a storage is a folder, or one of s3://"),
        ("file://host/x", "names the host 'host', and a folder has none"),
        (5, "path=5 is not a text"),
        ("/tmp/a\0b", "has the character NUL"),
    ],
)
def test_places_that_are_no_folder_are_refused(path, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadOption, match=re.escape(said)):
        Address.of(path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        (" ", "storage=' ' begins or ends with a blank"),
        ("s3://bucket/store ", "begins or ends with a blank"),
        (":memory:", "storage=':memory:': a store needs a folder"),
        ("dbfs:/store", "no 'dbfs:'; a mounted one is /dbfs/"),
        ("C:\\store", "a folder of Windows"),
        ("~nobody-has-this-name/store", "names no home folder"),
    ],
)
def test_storages_that_are_no_place_are_refused(storage, said):
    with pytest.raises(BadOption, match=re.escape(said)):
        Address.of(catalog=POSTGRES, storage=storage)


def test_schemes_may_be_in_capitals():
    address = Address.of(catalog="PostgreSQL+psycopg://me@Host/Ignis", storage="S3://Bucket/Prefix")

    assert address == Address("postgresql+psycopg://me@Host/Ignis", "s3://Bucket/Prefix")
    assert Address.of("FILE:///some/Folder").storage == "/some/Folder"
    with pytest.raises(BadOption, match="storage=s3://Bucket/store"):
        Address.of("S3A://Bucket/store")


def test_variables_of_the_environment_are_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("SHOP", "shop")

    assert Address.of("$HOME/a/${SHOP}").storage == "/home/ada/a/shop"
    assert Address.of(catalog=POSTGRES, storage="$HOME/shop").storage == "/home/ada/shop"
    sqlite = Address.of(catalog="sqlite:///$HOME/a.db?timeout=5", storage="s").catalog
    assert sqlite == "sqlite:////home/ada/a.db?timeout=5"
    assert Address.of("file:///data/%24SHOP").storage == "/data/$SHOP"
    secret = "postgresql+psycopg://me:a$SHOP@host/ignis"
    assert Address.of(catalog=secret, storage="s3://k:a$SHOP@b") == (secret, "s3://k:a$SHOP@b")


@pytest.mark.parametrize("path", ["$HOEM/shop", "/mnt/${HOEM}/shop"])
def test_a_variable_that_is_not_set_is_refused(path, monkeypatch):
    monkeypatch.delenv("HOEM", raising=False)

    for where in ({"path": path}, {"catalog": POSTGRES, "storage": path}):
        with pytest.raises(BadOption, match="the environment has no variable 'HOEM'"):
            Address.of(**where)


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"catalog": POSTGRES},
        {"storage": "s3://bucket"},
        {"path": "a", "catalog": POSTGRES, "storage": "s3://bucket"},
        {"path": "a", "storage": "s3://bucket"},
        {"catalog": "", "storage": ""},
    ],
    ids=lambda where: " and ".join(where) or "nothing",
)
def test_one_of_both_ways_must_be_chosen(where):
    with pytest.raises(BadOption, match="path="):
        Address.of(**where)


@pytest.mark.parametrize(
    ("url", "shown"),
    {
        "s3://bucket/folder": "s3://bucket/folder",
        "s3://bucket/a:b@c": "s3://bucket/a:b@c",
        "s3://key:secret@bucket/folder": "s3://***@bucket/folder",
        "s3://key:sec/ret@bucket/folder": "s3://***@bucket/folder",
        "s3://key:sec@ret@bucket/folder": "s3://***@bucket/folder",
        "s3://bucket/prefix?secret_key=s3cr3t": "s3://bucket/prefix?secret_key=***",
        "storage='s3://key:secret@bucket'": "storage='s3://***@bucket'",
        "abfs://box@account/path?account_key=s3cr3t&x=1": (
            "abfs://box@account/path?account_key=***&x=1"
        ),
        "postgresql+psycopg://me:s3cr3t@host:5432/ignis": "postgresql+psycopg://***@host:5432/ignis",
        "postgresql+psycopg://u:s3cr3t@h:port/db": "postgresql+psycopg://***@h:port/db",
        "postgresql+psycopg://h/db?user=u&password=s3cr3t": (
            "postgresql+psycopg://h/db?user=u&password=***"
        ),
        "postgresql+psycopg://me@host/ignis": "postgresql+psycopg://me@host/ignis",
        "postgres//u:s3cr3t@h/db": "postgres//***@h/db",
        "sqlite:////some/folder/catalog.db": "sqlite:////some/folder/catalog.db",
        "/some/folder": "/some/folder",
    }.items(),
)
def test_a_url_is_shown_without_its_secrets(url, shown):
    assert masked(url) == shown
    assert "s3cr3t" not in repr(Address(url, url))
    assert "s3cr3t" not in dialect.hidden(url)


@pytest.mark.parametrize("url", ["postgres//u:s3cr3t@h/db", "postgresql+psycopg://u:s3cr3t@h:x/db"])
def test_a_malformed_url_is_refused_without_its_secret(url):
    with pytest.raises(BadOption) as error:
        dialect.connect(url)

    assert "s3cr3t" not in str(error.value)


def test_the_environment_gives_an_address_that_is_given_nowhere_else(monkeypatch, tmp_path):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadOption, match=r"no address.*IGNIS_PATH"):
        Address.of()
    monkeypatch.setenv("IGNIS_PATH", str(tmp_path))
    assert Address.of() == Address.of("") == Address.of(tmp_path)
    assert Address.of("/other") == Address.of("/other", catalog=None)
    monkeypatch.setenv("IGNIS_CATALOG", "postgresql+psycopg://h/db")
    with pytest.raises(BadOption, match="not both"):
        Address.of()
    monkeypatch.delenv("IGNIS_PATH")
    with pytest.raises(BadOption, match="no address"):
        Address.of()
    monkeypatch.setenv("IGNIS_STORAGE", "s3://b/p")
    both = Address("postgresql+psycopg://h/db", "s3://b/p")
    assert Address.of() == Address.of(storage="s3://b/p") == both
    # One half may be given, and an empty text gives nothing.
    assert Address.of("", catalog="sqlite:////c.db") == Address("sqlite:////c.db", "s3://b/p")
    monkeypatch.setenv("IGNIS_PATH", "")
    assert Address.of() == both
