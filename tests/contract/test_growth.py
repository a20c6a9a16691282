"""Costs that must not grow with the size of a store, in steps of SQLite's machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy import update

from benchmarks.fabricated import SHARDS, make, run
from benchmarks.growth import DAY, age_failures, context_of, run_due
from ignis_console import messages
from ignis_console.details import read_queue
from queue_core import Queue, Store
from queue_core.catalog.tables import slices
from queue_core.upkeep.tasks import compaction
from queue_core.upkeep.tasks import expire as expire_task
from queue_core.upkeep.tasks.purge import purge
from queue_core.watching.present import FiguresReader
from tests.contract.small_parts import small_parts
from tests.factories import make_queue, orders
from tests.statements import heard

#: Instructions of SQLite per count; it calls back that often.
EACH = 50
#: A larger store may take this many times the steps of a small one: its indexes are deeper.
MORE = 2


@pytest.fixture
def small(tmp_path) -> Iterator[Store]:
    with Store.open(tmp_path / "small") as store:
        yield store


@pytest.fixture
def large(tmp_path) -> Iterator[Store]:
    with Store.open(tmp_path / "large") as store:
        yield store


@contextmanager
def counting(store: Store) -> Iterator[dict[str, int]]:
    """Count what the database does in the block."""
    counts = {"steps": 0, "statements": 0}

    def step() -> int:
        counts["steps"] += EACH
        return 0

    def begin(connection: object, *_: object) -> None:
        connection.set_progress_handler(step, EACH)  # type: ignore[attr-defined]

    def end(connection: object, *_: object) -> None:
        connection.set_progress_handler(None, 0)  # type: ignore[attr-defined]

    def execute(*_: object) -> None:
        counts["statements"] += 1

    engine = store.catalog.engine
    with heard(engine, checkout=begin, checkin=end, before_cursor_execute=execute):
        yield counts


def steps(store: Store, work: Callable[[], object]) -> int:
    with counting(store) as counts:
        work()
    return counts["steps"]


@pytest.mark.parametrize("view", ["shards", "queues", "slices"])
def test_a_view_of_one_queue_reads_no_other_queue(small, large, view):
    for store, count in ((small, 1), (large, 30)):
        for number in range(count):
            queue = make(store, f"queue-{number}", 1)
            queue.sideline(queue.fire(1), reason="test")
    few, many = (steps(s, lambda s=s: s.view(view, "queue-0")) for s in (small, large))
    assert many < MORE * few + 2 * EACH


def test_metadata_does_not_count_the_slices(small, large):
    few, many = make(small, "many", 10), make(large, "many", 2_000)
    assert steps(large, many.metadata) < MORE * steps(small, few.metadata)
    assert sum(many.metadata()["waiting"].to_pylist()) == 2_000


def test_one_statement_reads_the_failures_of_all_queues(large):
    for number in range(20):
        queue = make(large, f"queue-{number}", 1)
        queue.sideline(queue.fire(1), reason=str(number))

    with counting(large) as counts:
        found = large.view("failures")
    assert counts["statements"] <= 3
    assert sorted(found["reason"].to_pylist(), key=int) == [str(n) for n in range(20)]
    assert found["queue"].to_pylist() == sorted(large.queues())


def test_a_load_looks_only_at_the_known_keys_that_are_its_own(small, large):
    queues = [make_queue(store, dedup=["number"]) for store in (small, large)]

    def load_again(queue: Queue) -> None:
        for size in (1, 1, 1, 50):
            queue.load(orders(size, 1_000_000))

    for queue, known in zip(queues, (1_000, 100_000), strict=True):
        queue.load(orders(known))
        queue.load(orders(1, 1_000_000))
    few, many = (steps(queue.store, lambda q=queue: load_again(q)) for queue in queues)
    assert many < MORE * few


def fail_long_ago(queue: Queue, count: int) -> None:
    """Sideline messages one by one, eight days ago."""
    for _ in range(count):
        queue.sideline(queue.fire(1), reason="test")
    age_failures(queue.store, 8)


def test_old_failures_are_forgotten_without_a_look_at_the_slices_for_each(small, large):
    """In the transaction that writes, none is looked at."""
    for store, failures in ((small, 2), (large, 20)):
        fail_long_ago(make(store, "many", 1_000), failures)
    few, many = (steps(s, lambda s=s: purge(s.catalog)) for s in (small, large))
    assert many < MORE * few
    assert large.view("failures").num_rows == 0


def test_failures_of_older_messages_are_kept(large):
    one, other = make(large, "one", 10), make(large, "other", 10)
    for queue in (one, other):
        fail_long_ago(queue, 1)
    older = update(slices).where(slices.c.queue_id == other.info.id)
    change = older.values(loaded_at=slices.c.loaded_at - 9 * DAY)
    large.catalog.write(lambda connection: connection.execute(change))

    purge(large.catalog)
    assert large.view("failures")["queue"].to_pylist() == ["other"]


def test_vacuum_without_work_looks_at_no_slice_while_it_writes(small, large, monkeypatch):
    found = []
    for store, count in ((small, 10), (large, 2_000)):
        make(store, "many", count)
        written = [0]

        def write(work, of=store, before=store.catalog.write, total=written, **options):
            with counting(of) as counts:
                result = before(work, **options)
            total[0] += counts["steps"]
            return result

        monkeypatch.setattr(store.catalog, "write", write)
        store.admin.vacuum()
        found.append(written[0])

    assert 0 < found[1] < MORE * found[0]


def test_settling_one_message_looks_at_no_other_that_is_in_flight(small, large):
    found = []
    for store, count in ((small, 10), (large, 2_000)):
        queue = make(store, "many", count)
        ids = queue.fire("all", consumer=store.consumer("holder")).ids.to_pylist()
        found.append(steps(store, lambda q=queue, i=ids: q.delete([i[0]], consumer="holder")))
        found.append(steps(store, lambda q=queue, i=ids: q.delete([i[1]])))

    assert found[2] < MORE * found[0]
    assert found[3] < MORE * found[1]


def test_slices_that_are_not_worth_compacting_stay_in_the_database(large, monkeypatch):
    queue = make(large, "many", 2_000)
    run(large, "UPDATE segments SET bytes = 100000")
    run(large, "UPDATE slices SET bytes = 100000")
    monkeypatch.setattr(compaction, "units", lambda *_: pytest.fail("slices were fetched"))
    with counting(large) as counts:
        assert queue.admin.compact() == 0
    assert counts["statements"] <= 8


def test_a_round_of_compaction_is_bounded(large, monkeypatch):
    queue = make(large, "many", 64 * SHARDS)
    monkeypatch.setattr(compaction, "ROUND_SLICES", 200)
    monkeypatch.setattr(compaction, "TOGETHER", 64)
    moved = [compaction.run(context_of(large), queue.info) for _ in range(SHARDS)]
    # At most one shard more than the bound.
    assert max(moved) < 200 + 2 * 64
    assert sum(moved) >= 64 * (SHARDS - 1)


@pytest.mark.parametrize("task", [compaction, expire_task], ids=["compact", "expire"])
def test_a_due_task_without_work_looks_at_a_part_of_a_large_queue(small, large, task, monkeypatch):
    small_parts(monkeypatch, 64)
    found = []
    for store, count in ((small, 300), (large, 6_000)):
        queue = make(store, "many", count, message_expiry=86_400.0)
        run(store, "UPDATE segments SET bytes = 100000")
        run(store, "UPDATE slices SET bytes = 100000")
        work = partial(run_due, store, task, queue)
        assert work() == 0
        # The part at the end of a shard or a magazine may be smaller.
        found.append(max(steps(store, work) for _ in range(5)))

    few, many = found
    assert 0 < many < MORE * few


def test_failures_beside_older_messages_cost_no_look_at_all_slices(small, large):
    for store, count in ((small, 100), (large, 6_000)):
        queue = make(store, "many", count)
        queue.sideline(queue.fire(1), reason="test")
        age_failures(store, 8)
        run(store, f"UPDATE slices SET loaded_at = loaded_at - {9 * DAY}")

    few, many = (steps(s, lambda s=s: purge(s.catalog)) for s in (small, large))
    assert many < MORE * few
    assert large.view("failures").num_rows == 1


def with_all_states(store: Store, count: int) -> Queue:
    """A queue of *count* slices, of which two are in flight and two in the sideline."""
    queue = make(store, "many", count)
    queue.sideline(queue.fire(2), reason="test")
    queue.fire(2)
    return queue


@pytest.mark.parametrize(
    "page",
    [
        lambda queue: FiguresReader(queue.store.catalog, queue.store.storage).read(),
        lambda queue: read_queue(queue.store, queue.name, "hour"),
        lambda queue: messages.life(
            queue.store, queue.name, queue.peek(1)["_message_id"][0].as_py()
        ),
        lambda queue: queue.store.view("sideline", queue.name),
    ],
    ids=["queues", "queue", "message", "sideline"],
)
def test_a_page_of_the_console_does_not_look_through_the_slices(small, large, page):
    few, many = with_all_states(small, 10), with_all_states(large, 3_000)
    assert steps(large, lambda: page(many)) < MORE * steps(small, lambda: page(few))


@pytest.mark.parametrize("act", ["delete", "sideline", "reload"])
def test_an_act_on_one_message_does_not_look_through_the_slices(small, large, act):
    found = []
    for store, count in ((small, 10), (large, 3_000)):
        queue = with_all_states(store, count)
        held = act == "reload"
        message = queue.fire(1).ids[0] if held else queue.peek(1)["_message_id"][0]
        chosen = queue.choose(message.as_py())
        how = {"consumer": store.consumer().name} if held else {}

        def do(chosen=chosen, how=how) -> None:
            assert getattr(chosen, act)(**how) == 1

        found.append(steps(store, do))

    few, many = found
    assert many < MORE * few
