"""Stores of released versions can be read and used forever."""

import json
import shutil

import pyarrow as pa
import pytest
from sqlalchemy import select

from queue_core import Store
from queue_core.catalog.format import FORMAT, OLDEST
from queue_core.catalog.tables import SEALED
from queue_core.errors import QueueDeactivated, StaleCheckpoint
from queue_core.segments.reader import read_table
from queue_core.values.model import Ticket
from tests.books import audit
from tests.factories import make_batch, make_staged, orders, publish_once, seen
from tests.golden.make import HERE, QUERY, described, fill, folder_of, go_on

FORMATS = sorted(int(folder.name.removeprefix("format-")) for folder in HERE.glob("format-*"))


@pytest.fixture(params=FORMATS, ids="format {}".format)
def version(request):
    return request.param


@pytest.fixture
def expected(version):
    return json.loads((folder_of(version) / "expected.json").read_text())


@pytest.fixture
def store(version, tmp_path):
    """A copy of the golden store."""
    shutil.copytree(folder_of(version), tmp_path / "store")
    with Store.open(tmp_path / "store", create=False) as opened:
        yield opened


def test_every_format_that_was_released_is_kept():
    assert list(range(OLDEST, FORMAT + 1)) == FORMATS


def test_everything_is_as_it_was_written(store, expected):
    """Newer views, columns and settings were unknown when the store was written."""
    now = described(store)
    for row in [*now["views"]["queues"], *expected["views"]["queues"]]:
        row["settings"] = json.loads(row["settings"])

    now["views"] = known(now["views"], expected["views"])

    assert now == expected
    audit(store)


def known(now, then):
    """What is there now, with the names alone that were there then."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {name: known(now[name], then[name]) for name in then if name in now}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [known(*pair) for pair in zip(now, then, strict=True)]
    return now


def test_it_is_in_order_and_its_rows_have_seals(store):
    assert store.admin.fsck(deep=True).to_pylist() == []
    assert store.admin.fsck(repair=True).to_pylist() == []

    with store.catalog.read() as connection:
        for table in SEALED:
            assert None not in connection.scalars(select(table.c.seal)).all()
    assert store.admin.fsck().to_pylist() == []


def test_the_store_is_no_empty_one(expected):
    """Every verb has left something in it."""
    counts = (
        *("loaded", "fired", "reloaded", "deleted", "sidelined", "shovelled", "swept", "expired"),
        "in_flight",
    )
    shards = expected["views"]["shards"]
    totals = {name: sum(row[name] for row in shards) for name in counts}
    assert all(totals.values()), totals
    assert expected["views"]["failures"]
    assert {row["state"] for row in expected["views"]["slices"]} == {"loaded", "fired"}
    assert {row["location"] is None for row in expected["views"]["slices"]} == {True, False}


def test_what_was_compacted_is_fired_under_its_ids(store, expected):
    messages = expected["messages"]["small"]["main"]

    fired = store.queue("small").fire("all")

    assert fired.ids.to_pylist() == [m["_message_id"] for m in messages]
    assert fired.messages.column("number").to_pylist() == list(range(10, 80))
    assert (
        len({row["segment_id"] for row in expected["views"]["slices"] if row["queue"] == "small"})
        == 1
    )
    assert store.queue("small").delete(fired) == 70


def test_its_queues_keep_their_settings(store, expected):
    """What has another default now is as it was chosen, or as it was the default."""
    for row in expected["views"]["queues"]:
        settings = store.queue(row["queue"]).info.settings
        kept = json.loads(settings.to_json())
        written = json.loads(row["settings"])
        assert kept | written == kept
    brief = store.queue("brief")
    assert brief.info.settings.message_expiry == 1e-6
    with pytest.raises(QueueDeactivated):
        brief.load(orders(1))


def test_its_messages_are_fired_in_the_order_in_which_they_were_loaded(store, expected):
    queue = store.queue("orders")
    waiting = sum(
        row["waiting"]
        for row in expected["views"]["shards"]
        if (row["queue"], row["magazine"]) == ("orders", "main")
    )

    messages = queue.fire("all").messages.to_pylist()

    assert len(messages) == waiting
    for shard in range(2):
        numbers = [m["number"] for m in messages if (m["_shard"], m["_attempt"]) == (shard, 0)]
        assert numbers == sorted(numbers)
        assert numbers


def test_a_key_still_has_its_shard(store, expected):
    queue = store.queue("orders")
    messages = expected["messages"]["orders"].values()
    before = {m["customer"]: m["_shard"] for magazine in messages for m in magazine}
    known = {m["_message_id"] for m in queue.browse().to_pylist()}

    ids = queue.load(orders(100, 1000))

    assert not known & set(ids.to_pylist())
    new = [m for m in queue.browse().to_pylist() if m["_message_id"] not in known]
    after = {m["customer"]: m["_shard"] for m in new}
    assert len(before) == 10
    assert before == after


def test_a_query_that_died_finds_its_tickets(store, expected):
    queue = store.queue("orders")
    query = store.consumer(QUERY, beats=True)
    (row,) = [row for row in expected["views"]["consumers"] if row["consumer"] == QUERY]
    held = [m for m in expected["views"]["slices"] if m["consumer"] == QUERY]

    assert (query.epoch, row["last_ticket"]) == (row["epoch"] + 1, 2)
    for number in (1, 2):
        ticket = Ticket(consumer=query, number=number, fired_at=0, messages=0)
        messages = read_table(seen(store, queue, ticket))
        assert messages.num_rows == sum(m["messages"] for m in held if m["ticket"] == number) == 10


def test_only_the_ticket_that_nobody_saw_is_given_back(store):
    assert store.admin.recover(dead_after=1) == 10


def test_a_batch_that_was_published_is_still_known(store):
    queue = store.queue("sunk")
    staged = make_staged(queue, orders(5))

    def publish(number):
        batch = make_batch(staged, number, "query-2")
        return publish_once(store.catalog, store.storage, queue.info, staged, batch)

    with pytest.raises(StaleCheckpoint, match="recorded batch 7"):
        publish(6)
    assert [publish(number) for number in (7, 8)] == [False, True]


def test_every_verb_goes_on(store):
    queue = store.queue("orders")

    go_on(queue)
    queue.admin.add_columns(pa.schema([("more", pa.int64())]))
    store.admin.vacuum(grace=0)

    audit(store)
    assert queue.browse(magazine="sideline").num_rows > 0


def test_what_this_version_writes_is_described_alike(tmp_path, expected, version):
    """The script still makes the store that is kept, but for times, names and places."""
    if version != FORMAT:
        pytest.skip("an older format is not written any more")
    with Store.open(tmp_path / "new") as store:
        fill(store)
        made = described(store)

    assert made["schemas"] == expected["schemas"]
    assert made["messages"].keys() == expected["messages"].keys()
    for name, magazines in made["messages"].items():
        for magazine, messages in magazines.items():
            assert numbers(messages) == numbers(expected["messages"][name][magazine])


def numbers(messages):
    return sorted(message.get("number", 0) for message in messages)
