"""Commands of maintenance count what they have done on a terminal, and nowhere else."""

import pytest
from sqlalchemy import select, update

from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.records import progress
from queue_core.catalog.slices import rewritable
from queue_core.catalog.tables import segments
from queue_core.errors import DamagedSegment
from queue_core.segments import stager
from queue_core.verbs import recover, repair
from tests.dump import load_earlier
from tests.factories import load_singly, make_filled, make_queue, numbers_of, orders, planned
from tests.storages import Files


def mergeable(store, monkeypatch):
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 4)
    load_singly(make_queue(store), 5)


def expired(store, monkeypatch):
    make_queue(store, message_expiry=10_000.0).load(orders(5))
    load_earlier(store, 10_000.0)


def removable(store, monkeypatch):
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    queue = make_filled(store, 5, each=1)
    queue.choose("all").delete()


def unseen(store, monkeypatch):
    monkeypatch.setattr(recover, "ROUND_MESSAGES", 2)
    query, queue = store.consumer("query", beats=True), make_queue(store)
    queue.load(orders(8))
    for count in (1, 3, 1):
        planned(store, queue, query, count)
    earlier = consumers.c.heartbeat_at - 10**9
    store.catalog.write(lambda c: c.execute(update(consumers).values(heartbeat_at=earlier)))


def damaged(store, monkeypatch):
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    monkeypatch.setattr(repair, "ROUND_SLICES", 2)
    queue = make_filled(store, 5, each=1)
    with store.catalog.read() as connection:
        files = [
            Files(store.storage.uri).file(location)
            for location in connection.scalars(select(segments.c.file))
        ]
    contents = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    for _ in files:
        with pytest.raises(DamagedSegment):
            queue.fire(1)
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)


WORK = {
    "compact": (mergeable, ["orders"]),
    "expire": (expired, ["orders"]),
    "vacuum": (removable, ["--grace", "0s"]),
    "recover": (unseen, []),
    "repair": (damaged, ["orders"]),
}


@pytest.mark.parametrize("command", WORK)
def test_long_work_is_counted_on_a_terminal(ignis, store, monkeypatch, command):
    make, given = WORK[command]
    make(store, monkeypatch)
    monkeypatch.setenv("FORCE_COLOR", "1")

    done = ignis(command, *given)

    assert done.exit_code == 0, done.stderr
    # The messages that expire are not counted before.
    assert ("5/?" if command == "expire" else "5/5") in done.stderr


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_is_counted_in_a_pipe_or_beside_json(ignis, store, monkeypatch, terminal):
    removable(store, monkeypatch)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")

    done = ignis(*["--json"] * terminal, "vacuum", "--grace", "0s")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(
    ("make", "repair", "rounds", "numbers"),
    [
        # Whole tickets.
        (unseen, lambda store: store.admin.recover(), [4, 1], range(8)),
        pytest.param(
            damaged,
            lambda store: store.queue("orders").admin.repair().messages,
            [2, 2, 1],
            range(5),
            marks=pytest.mark.spoiled,
        ),
    ],
)
def test_messages_come_back_in_rounds(store, monkeypatch, make, repair, rounds, numbers):
    make(store, monkeypatch)
    heard = []

    with progress.told_to(lambda *counts: heard.append(counts)):
        assert repair(store) == 5

    assert [done for done, _ in heard if done] == rounds
    assert sum(expected for _, expected in heard) == 5
    assert numbers_of(store.queue("orders").fire("all").messages) == list(numbers)
