"""A bucket: its address, its errors, and the verbs in it."""

import socket
import threading
import time
import traceback
from contextlib import contextmanager

import pytest

from queue_core import Store
from queue_core.catalog.slices import rewritable
from queue_core.errors import DamagedSegment, StorageUnavailable
from queue_core.segments import filesystems, reader
from queue_core.segments.storage import AT_ONCE, Storage
from queue_core.values.views import VIEWS
from tests.books import audit, leftover_files
from tests.dump import dump
from tests.factories import load_singly, make_filled, make_queue, numbers_of, orders, planned, seen
from tests.servers import ObjectStore
from tests.storages import IN_A_BUCKET, Files

pytestmark = pytest.mark.s3

SECRETS = (ObjectStore.KEY, ObjectStore.SECRET)


@contextmanager
def hears_nobody():
    """A port without a listener."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        yield other.getsockname()[1]


@contextmanager
def says_nothing():
    """A port whose server takes every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(filesystems, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(filesystems, "ATTEMPTS", 1)


def tables(store):
    return [store.view(name).to_pylist() for name in VIEWS]


def told_without_secrets(error):
    told = "".join(traceback.format_exception(error))
    return not any(secret in told for secret in SECRETS)


# --- where it is ----------------------------------------------------------------------------------


def test_server_and_credentials_come_from_the_environment(object_store, monkeypatch):
    place = object_store.bucket().partition("@")[2].partition("?")[0]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{object_store.endpoint}/")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "some key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "some secret")

    storage = Storage.open(f"s3://{place}")

    with storage.create(storage.new_location("orders")) as sink:
        sink.write(b"x")
    assert len(storage.list()) == 1
    assert storage.name == storage.uri == f"s3://{place}"


@pytest.mark.parametrize("folder", ["", "/", "/a", "/a/b/"])
def test_a_store_may_be_in_any_folder_of_a_bucket(object_store, folder):
    bucket = object_store.bucket().partition("@")[2].partition("/")[0]
    storage = Storage.open(object_store.uri(f"{bucket}{folder}"))
    location = storage.new_location("orders")
    with storage.create(location) as sink:
        sink.write(b"x")

    assert storage.list().keys() == {location}
    expected = f"{folder.strip('/')}/{location}".lstrip("/")
    assert Files(object_store.uri(bucket)).names() == {expected}


# --- when it cannot be used -----------------------------------------------------------------------


@pytest.mark.parametrize("port", [hears_nobody, says_nothing])
def test_a_server_that_does_not_answer_is_told_of_soon_and_nothing_changes(
    tmp_path, port, impatient
):
    with port() as number:
        uri = ObjectStore.at(f"127.0.0.1:{number}", "some-bucket/folder")
        with Store.open(catalog=f"sqlite:///{tmp_path}/catalog.db", storage=uri) as store:
            queue = make_queue(store)
            before = tables(store)
            begin = time.monotonic()
            with pytest.raises(StorageUnavailable) as error:
                queue.load(orders(10_000))
            with pytest.raises(StorageUnavailable):
                store.admin.vacuum()
            assert time.monotonic() - begin < 30
            assert tables(store) == before
            assert len(queue.load(orders(5))) == 5, "what is inlined needs no file"

    assert "s3://***@some-bucket/folder" in str(error.value)
    assert "nothing was changed; check that the server" in str(error.value)
    assert told_without_secrets(error.value)


def test_a_bucket_that_is_not_there_is_not_taken_for_an_empty_one(object_store, tmp_path):
    uri = object_store.uri("no-such-bucket/folder")
    with Store.open(catalog=f"sqlite:///{tmp_path}/catalog.db", storage=uri) as store:
        with pytest.raises(StorageUnavailable, match="'no-such-bucket' does not exist; create it"):
            make_queue(store).load(orders(10_000))
        with pytest.raises(StorageUnavailable, match="'no-such-bucket' does not exist; create it"):
            store.admin.vacuum()
        with pytest.raises(StorageUnavailable, match="bucket 'no-such-bucket' does not exist"):
            store.storage.opened("segments/orders/one.arrow")


@IN_A_BUCKET
@pytest.mark.spoiled
def test_credentials_are_shown_nowhere(store, in_files):
    queue = make_filled(store, 10)
    reading = seen(store, queue, planned(store, queue, store.consumer("query", beats=True), 5))
    (location,) = store.storage.list()
    store.storage.remove(location)
    with pytest.raises(DamagedSegment) as error:
        queue.fire("all")

    assert told_without_secrets(error.value)
    for shown in (store, store.storage, store.address, queue, reading, tables(store), dump(store)):
        assert not any(secret in repr(shown) for secret in SECRETS)
    assert "***@" in repr(store)


# --- the verbs ------------------------------------------------------------------------------------


@IN_A_BUCKET
def test_messages_live_in_a_bucket_as_they_do_in_a_folder(store, in_files):
    queue = make_filled(store, 1000, shards=2, key="customer")
    firing = queue.fire(100, selector="amount >= 100")
    assert min(numbers_of(firing.messages)) >= 400
    queue.sideline(firing.ids[:10], reason="no stock")
    queue.reload(firing.ids[10:20])
    assert queue.delete(firing.ids[20:]) == 80

    aside = queue.browse(magazine="sideline")
    assert set(numbers_of(aside)) == set(numbers_of(firing.messages)[:10])
    assert queue.shovel() == 10
    assert queue.browse().num_rows == 920
    audit(store)


@IN_A_BUCKET
def test_compaction_writes_one_object_for_many(store, in_files, monkeypatch):
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 8)
    queue = make_filled(store, 20, each=1)
    before = queue.browse()

    assert queue.admin.compact() == 20
    store.admin.vacuum(grace=0)

    assert len(store.storage.list()) == 1
    assert queue.browse().equals(before)
    assert queue.delete(queue.fire("all")) == 20
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == set()


@IN_A_BUCKET
def test_a_policy_rewrites_what_is_in_a_bucket(store, in_files):
    queue = make_queue(store, key="customer", policy="merge(sum(amount), last(number))")
    queue.load(orders(10, customers=2))
    queue.load(orders(10, 10, customers=2))

    messages = queue.fire("all").messages
    assert sorted(numbers_of(messages)) == [18, 19]
    assert sum(messages.column("amount").to_pylist()) == sum(range(20)) / 4


@IN_A_BUCKET
def test_small_segments_are_read_side_by_side_and_in_order(store, in_files, monkeypatch):
    queue = make_filled(store, 20, each=1)
    queue.load(orders(1000, 20))
    load_singly(queue, 20, 1020)
    opened, lock, reading, most = Storage.opened, threading.Lock(), set(), []

    def slowly(storage, location):
        with lock:
            reading.add(location)
            most.append(len(reading))
        time.sleep(0.02)
        handle = opened(storage, location)
        with lock:
            reading.remove(location)
        return handle

    monkeypatch.setattr(Storage, "opened", slowly)
    # The large segment is more than one look ahead keeps in memory.
    monkeypatch.setattr(reader, "GATHER_MEMORY", 10_000)

    assert numbers_of(queue.browse()) == list(range(1040))
    assert 4 < max(most) <= AT_ONCE


@IN_A_BUCKET
def test_a_damaged_one_among_segments_that_are_read_side_by_side_is_named(store, in_files):
    queue = make_filled(store, 12, each=1)
    files = Files(store.storage.uri)
    name = sorted(name for name in files.names() if name.startswith("segments/"))[7]
    files.file(name).write_bytes(b"spoilt")

    with pytest.raises(DamagedSegment, match=name):
        queue.fire("all")
    assert len(queue.fire("all")) == 11
