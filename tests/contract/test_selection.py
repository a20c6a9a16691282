"""Firing by a selector, by an order, or by both."""

import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from queue_core import Store
from queue_core.errors import BadSelector, DamagedSegment
from queue_core.selection import fifo_scan
from queue_core.selection.candidates import find_candidates
from queue_core.selection.request import Demand
from queue_core.selection.scan import SliceScan
from queue_core.values.plan import Taken
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.storages import copy_catalog, put_catalog_back
from tests.waiting import PATIENCE, Caller


def test_only_messages_that_meet_the_selector_are_fired(store: Store) -> None:
    queue = make_queue(store, shards=4, key="customer")
    queue.load(orders(400, customers=40))
    firing = queue.fire("all", selector="number % 2 = 0 AND number >= 300")
    assert sorted(numbers_of(firing.messages)) == list(range(300, 400, 2))
    # Evenly from all shards.
    firing = queue.fire(10, selector="number < 300")
    assert sorted(Counter(firing.messages["_shard"].to_pylist()).values()) == [2, 2, 3, 3]


def test_the_oldest_matches_of_a_shard_come_first(store: Store) -> None:
    queue = make_queue(store)
    queue.load(orders(50))
    queue.load(orders(50, first=50))
    assert numbers_of(queue.fire(3, selector="number % 10 = 7").messages) == [7, 17, 27]
    assert numbers_of(queue.fire(9, selector="number % 20 = 7").messages) == [47, 67, 87]


@pytest.mark.parametrize("limit", [{"max_messages": 1}, {"max_bytes": 1}], ids=str)
def test_the_oldest_matches_come_first_whatever_slices_they_are_in(
    store: Store, limit: dict[str, int]
) -> None:
    """Slices lie between each other, and what matches of an earlier one stands behind."""
    queue = make_filled(store, 6)
    ids = queue.fire("all").ids.to_pylist()
    for back in ([0, 4], [1, 5], [2, 3]):
        queue.reload([ids[number] for number in back])

    for number in (3, 4, 5):
        fired = queue.fire(selector="number >= 3", **limit)
        assert numbers_of(fired.messages) == [number]


def test_a_match_behind_many_other_messages_of_its_slice_is_found(store: Store) -> None:
    queue = make_filled(store, 20_000)
    assert numbers_of(queue.fire(1, selector="number = 19999").messages) == [19_999]


def test_an_order_says_what_comes_first_over_all_shards(store: Store) -> None:
    queue = make_filled(store, 100, shards=4, key="customer")
    assert numbers_of(queue.fire(3, order_by="amount DESC").messages) == [99, 98, 97]
    assert numbers_of(queue.fire(2, order_by="MIN(amount)").messages) == [0, 1]
    # Equal ones come oldest first.
    assert numbers_of(queue.fire(4, order_by="customer").messages) == [10, 20, 30, 40]


def test_selector_and_order_work_together(store: Store) -> None:
    queue = make_filled(store, 100, shards=2, key="customer")
    firing = queue.fire(2, selector="customer = 'customer-3'", order_by="number DESC")
    assert numbers_of(firing.messages) == [93, 83]


def test_nothing_that_matches_is_an_empty_firing(store: Store) -> None:
    queue = make_filled(store, 4)
    assert len(queue.fire("all", selector="number > 1000")) == 0
    assert queue.peek(2, selector="number > 1000").num_rows == 0
    assert pc.sum(queue.metadata().column("fired")).as_py() == 0
    queue.sideline(queue.fire(2), reason="first try")
    queue.shovel()
    assert numbers_of(queue.fire("all", selector="_attempt = 1").messages) == [0, 1]


def test_a_condition_holds_for_the_attempts_that_a_message_has_now(store: Store) -> None:
    queue = make_filled(store, 4)
    queue.delete(queue.fire("all", selector="number = _attempt"))
    queue.sideline(queue.fire("all"))
    queue.shovel()
    assert numbers_of(queue.fire("all", selector="number = _attempt").messages) == [1]


def test_the_head_of_a_group_is_found_among_few_of_many_small_slices(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_filled(store, 200, each=1, group="customer", key="customer", shards=1)
    looked = []
    table = SliceScan.table

    def noted(self: SliceScan, taken: list[Taken], columns: frozenset[str]) -> pa.Table:
        looked.append(len(taken))
        return table(self, taken, columns)

    monkeypatch.setattr(SliceScan, "table", noted)
    assert numbers_of(queue.fire(2).messages) == [0, 1]
    assert 0 < sum(looked) <= 2 * fifo_scan.STEP_SLICES


@pytest.mark.parametrize("step", [1, 1 << 14])
def test_slices_whose_rows_interleave_are_searched_in_order(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(fifo_scan, "STEP_ROWS", (step, step))
    queue = make_filled(store, 9)
    queue.reload(queue.fire("all", selector="number % 2 = 1"))
    found = [numbers_of(queue.fire(3, selector="number % 7 <> 5").messages) for _ in range(3)]
    assert found == [[0, 1, 2], [3, 4, 6], [7, 8]]


def test_a_waiting_firing_is_woken_by_a_match_only(store: Store) -> None:
    queue = make_queue(store)
    waiting = Caller(lambda: queue.fire("all", selector="number > 101", timeout=PATIENCE))
    queue.load(orders(3))
    time.sleep(0.3)
    assert waiting.is_alive()
    queue.load(orders(3, first=100))
    assert numbers_of(waiting.done().messages) == [102]


@pytest.mark.spoiled
def test_statistics_keep_slices_closed_that_cannot_match(store: Store) -> None:
    queue = make_queue(store, attributes=["number"])
    queue.load(orders(10))
    queue.load(orders(10, first=1000))
    with store.catalog.engine.begin() as connection:
        # If the first slice were opened, its checksum would be found wrong.
        connection.exec_driver_sql("UPDATE segments SET data = chunks WHERE id = 1")
    assert numbers_of(queue.fire("all", selector="number >= 1005").messages) == list(
        range(1005, 1010)
    )


def _gone(store: Store, condition: str) -> None:
    """Remove the files of some segments, so that opening one fails."""
    with store.catalog.engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE segments SET data = NULL, file = 'gone-' || id WHERE {condition}"
        )


@pytest.mark.spoiled
def test_a_small_limit_reads_no_more_of_a_backlog_than_it_needs(store: Store) -> None:
    queue = make_filled(store, 80_000, each=20_000)
    _gone(store, "id > 1")
    assert numbers_of(queue.fire(3, selector="number % 1000 = 7").messages) == [7, 1007, 2007]
    with pytest.raises(DamagedSegment, match="gone"):
        queue.fire(3, selector="number = 30000")


@pytest.mark.spoiled
def test_an_order_reads_only_what_may_come_first(store: Store) -> None:
    queue = make_queue(store, shards=2, key="customer", attributes=["number"])
    for first in range(0, 120_000, 40_000):
        queue.load(orders(40_000, first))
    _gone(store, "id < 3")
    firing = queue.fire(3, order_by="number DESC")
    assert numbers_of(firing.messages) == [119_999, 119_998, 119_997]


@pytest.mark.spoiled
def test_what_statistics_decide_is_taken_without_a_look(store: Store) -> None:
    queue = make_queue(store, attributes=["number"])
    ids = queue.load(orders(10)).to_pylist()
    queue.load(orders(10, first=10))
    _gone(store, "id > 0")
    demand = Demand(selector="number < 10 AND _attempt = 0")
    chosen = demand.selection([queue.info])
    wanted = demand.request([queue.info], chosen, store.storage.uri)
    picked = find_candidates(store.catalog, wanted)
    assert picked is not None
    assert picked.ids.numbers().tolist() == ids


def test_a_bad_selector_is_refused_and_changes_nothing(store: Store) -> None:
    queue = make_filled(store, 3)
    before = store.view("slices")
    wrong = [("nmber > 1", "number"), ("number >", "selector"), ("number > 'x'", "number")]
    for selector, named in wrong:
        with pytest.raises(BadSelector, match=named):
            queue.fire("all", selector=selector)
    assert store.view("slices").equals(before)


def test_many_consumers_with_overlapping_selectors_take_nothing_twice(store: Store) -> None:
    queue = make_filled(store, 2000, shards=4, key="customer")

    def consume(selector: str) -> list[int]:
        taken: list[int] = []
        who = store.consumer(f"consumer-{threading.get_ident()}")
        while len(firing := queue.fire(100, selector=selector, consumer=who)):
            taken += numbers_of(firing.messages)
        return taken

    selectors = ["number % 2 = 0", "number % 3 = 0", "number < 1000", "number >= 0"]
    callers = [Caller(partial(consume, text)) for text in selectors]
    taken = [number for caller in callers for number in caller.done()]
    # A firing may find nothing while the others hold the messages for long.
    taken += consume("number >= 0")
    assert sorted(taken) == list(range(2000))


def test_a_selection_reads_columns_that_came_later_as_null(store: Store) -> None:
    queue = make_filled(store, 2)
    queue.admin.add_columns(pa.schema([pa.field("note", pa.string())]))
    queue.load([{"number": 9, "customer": "c", "amount": 1.0, "note": "new"}])
    assert numbers_of(queue.fire("all", selector="note IS NULL").messages) == [0, 1]
    assert numbers_of(queue.fire("all", selector="note = 'new'").messages) == [9]


def test_what_a_restored_catalog_has_is_compared_anew(tmp_path: Path) -> None:
    """A copy that is put back assigns the same numbers to other segments."""
    store = Store.open(tmp_path / "shop")
    queue = make_queue(store)
    copy_catalog(tmp_path / "shop/catalog.db", tmp_path / "copy.db")
    queue.load(orders(4))
    assert numbers_of(queue.fire("all", selector="number % 2 = 0").messages) == [0, 2]
    store.close()

    put_catalog_back(tmp_path / "copy.db", tmp_path / "shop/catalog.db")
    with Store(store.address, create=False, adopt=True) as store:
        queue = store.queue("orders")
        queue.load(orders(4, 1))
        assert numbers_of(queue.fire("all", selector="number % 2 = 0").messages) == [2, 4]
