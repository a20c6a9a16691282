"""The messages that a firing may take, by the queue's settings and the messages' columns."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlalchemy import update

from ignis_source.offset import Offset
from queue_core import Queue, Store, limit
from queue_core.catalog.database import Catalog
from queue_core.catalog.tables import segments, slices
from queue_core.errors import BadOption, SchemaMismatch
from queue_core.segments.reader import read_table
from queue_core.selection import candidates
from queue_core.selection.request import Candidates, Demand, FireRequest
from queue_core.values.schema import TIMESTAMP
from queue_core.verbs.fire import fire
from tests.factories import make_queue, numbers_of
from tests.waiting import PATIENCE, until

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("who", pa.string()),
        pa.field("priority", pa.int32()),
        pa.field("_expires_at", TIMESTAMP),
        pa.field("_hold_until", TIMESTAMP),
    ]
)
HOUR = timedelta(hours=1)


@pytest.fixture
def queue(store: Store) -> Queue:
    return make_queue(store, schema=SCHEMA)


def now(queue: Queue) -> datetime:
    """The catalog's time."""
    return datetime.fromtimestamp(queue.store.catalog.now() / 1e6, UTC)


def load(queue: Queue, *numbers: int, **columns: Any) -> None:
    """Messages with these numbers and the same values otherwise."""
    queue.load([{"number": number, "who": "a"} | columns for number in numbers])


def fired(queue: Queue, count: int | None = None, **wanted: Any) -> list[int]:
    return numbers_of(queue.fire(count or "all", **wanted).messages)


def test_what_is_expired_is_never_fired_and_counted_as_expired(queue: Queue) -> None:
    gone, kept = now(queue) - HOUR, now(queue) + HOUR
    times = [gone if n % 3 else kept if n % 2 else None for n in range(60)]
    queue.load([{"number": n, "_expires_at": at} for n, at in enumerate(times)])
    assert fired(queue) == list(range(0, 60, 3))
    assert queue.admin.expire() == 40
    assert [queue.metadata()[name][0].as_py() for name in ("expired", "waiting")] == [40, 0]


def test_what_is_expired_in_flight_goes_too_and_what_is_in_the_sideline_stays(
    queue: Queue,
) -> None:
    load(queue, 1, 2, 3, _expires_at=now(queue) + timedelta(seconds=4))
    queue.sideline(queue.fire(1))
    held = queue.fire(1)
    until(lambda: queue.peek(1).num_rows == 0)
    assert fired(queue) == []
    assert queue.shovel() == queue.shovel(force=True) == 0
    assert queue.admin.expire() == 1
    queue.reload(held)
    assert fired(queue) == []
    assert queue.admin.expire() == 1
    assert fired(queue, 9, magazine="sideline") == [1]


def test_a_waiting_firing_gets_a_held_message_within_a_second_of_its_time(queue: Queue) -> None:
    due = now(queue) + timedelta(seconds=2)
    load(queue, 1, _hold_until=due)
    load(queue, 2, _hold_until=now(queue) - HOUR)
    load(queue, 3)
    assert fired(queue) == [2, 3]
    firing = queue.fire("all", timeout=PATIENCE)
    assert numbers_of(firing.messages) == [1]
    late = firing.messages["_fired_at"][0].as_py() - due
    # A second, and what a busy machine takes.
    assert timedelta(0) <= late < timedelta(seconds=10)


def test_no_value_without_tokens_keeps_a_held_message_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_core.waiting.fire.SETTINGS_SECONDS", 10 * PATIENCE)
    queue = make_queue(store, schema=SCHEMA, limits=limit("who", per_second=0.001))
    load(queue, 1, 2)
    assert fired(queue) == [1]
    due = now(queue) + timedelta(seconds=2)
    load(queue, 3, who="b", _hold_until=due)
    firing = queue.fire("all", timeout=PATIENCE)
    assert numbers_of(firing.messages) == [3]
    late = firing.messages["_fired_at"][0].as_py() - due
    assert timedelta(0) <= late < timedelta(seconds=10)


def test_the_greatest_priority_is_first_then_the_oldest(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, shards=3, key="who", priority="priority")
    for number, (who, priority) in enumerate(zip("abcabc", (1, 5, None, 5, -1, 1), strict=True)):
        load(queue, number, who=who, priority=priority)
    # A consumer's order goes before it.
    assert numbers_of(queue.peek(order_by="who")) == [3, 0, 1, 4, 5, 2]
    assert set(fired(queue, 2)) == {1, 3}
    assert set(numbers_of(queue.peek(2))) == {0, 5}
    assert fired(queue, 1) == [0]
    assert fired(queue) == [5, 4, 2]


def test_waiting_counts_as_priority_so_that_nothing_is_forgotten(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, priority="priority", priority_aging=10.0)
    load(queue, 1, priority=1)
    load(queue, 2, priority=None)
    _made_older(store, 60.0)
    load(queue, 3, priority=6)
    load(queue, 4, priority=8)
    assert fired(queue) == [4, 1, 2, 3]


def test_an_age_can_be_asked_about_and_ordered_by(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA)
    load(queue, 1, priority=9)
    _made_older(store, 120.0)
    load(queue, 2, priority=10)
    assert numbers_of(queue.peek(selector="_age > 60")) == [1]
    assert fired(queue, 1, order_by="priority + _age / 60 DESC") == [1]
    assert "_age" not in queue.peek().column_names


def test_one_message_of_a_group_is_in_flight_and_groups_do_not_wait_for_each_other(
    store: Store,
) -> None:
    queue = make_queue(store, schema=SCHEMA, shards=2, group="who")
    assert queue.info.key == "who"
    for number, who in enumerate("aabbac"):
        load(queue, number, who=who)
    first = queue.fire("all")
    assert sorted(numbers_of(first.messages)) == [0, 2, 5]
    assert fired(queue) == []
    ids = dict(zip(numbers_of(first.messages), first.ids.to_pylist(), strict=True))
    queue.delete([ids[0]])
    assert fired(queue) == [1]
    queue.sideline([ids[2]])
    assert fired(queue) == [3]
    assert fired(queue) == []


def test_a_sweep_frees_a_group(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, group="who", sweep_after=0.05)
    load(queue, 1, 2)
    assert fired(queue) == [1]
    time.sleep(0.1)
    assert queue.sweep() == 1
    assert fired(queue) == [2]


def test_a_head_that_is_not_asked_for_holds_its_group_back(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, group="who", attributes=["priority"])
    load(queue, 1, who="a", priority=0)
    load(queue, 2, who="a", priority=7)
    load(queue, 3, who="b", priority=7)
    assert fired(queue, selector="priority = 7") == [3]
    assert fired(queue, selector="priority = 7") == []


def test_a_head_that_was_found_is_left_if_another_message_became_the_head(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(store, schema=SCHEMA, group="who")
    load(queue, 1, 2)

    def find_and_lag(catalog: Catalog, request: FireRequest) -> Candidates | None:
        monkeypatch.undo()
        found = candidates.find_candidates(catalog, request)
        # Others fire the head, which comes back behind the next one while that is in flight.
        queue.sideline(queue.fire())
        assert fired(queue) == [2]
        queue.shovel()
        return found

    monkeypatch.setattr(candidates, "find_candidates", find_and_lag)
    assert fired(queue) == []


def test_heads_come_by_priority_and_groups_stay_in_order(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, shards=4, group="who", priority="priority")
    for number, (who, priority) in enumerate(zip("abcab", (1, 2, 3, 9, 9), strict=True)):
        load(queue, number, who=who, priority=priority)
    assert fired(queue, 2) == [2, 1]
    assert fired(queue) == [0]


def test_the_sideline_knows_no_groups(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, group="who")
    load(queue, 1, 2)
    for _ in range(2):
        queue.sideline(queue.fire("all"))
    assert fired(queue, magazine="sideline") == [1, 2]


def test_a_fallback_takes_the_oldest_when_nothing_matches(queue: Queue) -> None:
    load(queue, 1, 2, 3)
    assert fired(queue, 1, selector="number = 3", fallback=True) == [3]
    assert fired(queue, 1, selector="number = 3", fallback=True) == [1]
    assert fired(queue, 1, selector="number = 3") == []


@pytest.mark.spoiled
def test_categories_are_found_without_opening_a_segment(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, categories=["who"])
    queue.load([{"number": n, "who": "xyz"[n % 3]} for n in range(30)])
    with store.catalog.engine.begin() as connection:
        # What is opened is found to be altered.
        connection.exec_driver_sql("UPDATE segments SET data = chunks")
    assert store.view("slices").column("messages").to_pylist() == [10, 10, 10]
    wanted = FireRequest(
        queue_ids=(queue.info.id,),
        max_messages=4,
        selection=Demand(selector="who = 'y'").selection([queue.info]),
        queues=(queue.info,),
        storage=store.storage.uri,
    )
    ticket = fire(store.catalog, store.consumer(), wanted, seen=False).ticket
    assert ticket is not None
    assert ticket.messages == 4


def test_too_many_categories_are_left_together(store: Store) -> None:
    queue = make_queue(store, schema=SCHEMA, categories=["number"])
    load(queue, *range(100))
    assert store.view("slices").num_rows == 1
    assert fired(queue, selector="number = 77") == [77]


def test_a_load_says_for_how_long_and_from_when(store: Store) -> None:
    queue = make_queue(store, schema=pa.schema([pa.field("number", pa.int64())]))
    queue.load([{"number": 1}])
    queue.load([{"number": 2}], ttl=0.0)
    queue.load([{"number": 3}], hold=3600.0)
    queue.load([{"number": 4}], ttl=3600.0, hold=0.0)
    assert queue.schema.names == ["number", "_expires_at", "_hold_until"]
    assert fired(queue) == [1, 4]
    queue.load([{"number": 5, "_expires_at": now(queue) + HOUR}, {"number": 6}], ttl=0.0)
    assert fired(queue) == [5]
    with pytest.raises(BadOption, match="ttl"):
        queue.load([{"number": 7}], ttl=-1.0)
    assert queue.admin.expire() == 2


def test_a_ttl_is_refused_where_no_column_says_when_messages_expire(store: Store) -> None:
    schema = pa.schema([pa.field("number", pa.int64())])
    queue = make_queue(store, schema=schema, expires_at="")
    with pytest.raises(BadOption, match="ttl=60: by its setting expires_at, which is empty"):
        queue.load([{"number": 1}], ttl="1m")
    assert store.queue("orders").schema.names == ["number"]
    queue.load([{"number": 1}], hold=0.0)
    assert fired(queue) == [1]


def test_a_load_fills_the_columns_that_another_process_has_just_chosen(store: Store) -> None:
    times = [pa.field(name, TIMESTAMP) for name in ("_expires_at", "until", "since")]
    queue = make_queue(store, schema=pa.schema([pa.field("number", pa.int64()), *times]))
    other = store.queue("orders")
    other.admin.change_settings(expires_at="until")
    queue.load([{"number": 1}], ttl=0.0)
    other.admin.change_settings(hold_until="since")
    queue.load([{"number": 2}], hold=3600.0)
    queue.load([{"number": 3}])
    assert fired(queue) == [3]
    assert store.queue("orders").schema.names == ["number", "_expires_at", "until", "since"]


@pytest.mark.parametrize("name", ["ttl", "hold"])
def test_a_time_that_no_message_can_have_changes_nothing(store: Store, name: str) -> None:
    queue = make_queue(store, schema=pa.schema([pa.field("number", pa.int64())]))
    other = "hold" if name == "ttl" else "ttl"
    for wrong in (1e18, 3.2e9, -1.0, float("nan"), "never", "10000000w"):
        with pytest.raises(BadOption, match=f"^{name}=.*from 0 to a hundred years"):
            queue.load([{"number": 1}], **{other: 1.0, name: wrong})
    assert store.queue("orders").schema.names == ["number"]
    assert queue.browse().num_rows == 0
    queue.load([{"number": 1}], ttl="3155760000s", hold=3_155_760_000)
    assert queue.browse().num_rows == 1


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"expires_at": "number"}, "timestamps"),
        ({"hold_until": "who"}, "timestamps"),
        ({"priority": "who"}, "numbers"),
        ({"priority": "prioriti"}, "priority"),
        ({"priority_aging": 5.0}, "priority"),
        ({"group": "who", "key": "number"}, "key"),
        ({"categories": ["nobody"]}, "nobody"),
        ({"categories": ["tags"]}, "categories: column 'tags' is list"),
        ({"attributes": ["nobody"]}, "nobody"),
    ],
)
def test_a_column_that_cannot_be_what_it_is_to_be_is_refused(
    store: Store, settings: dict[str, Any], fault: str
) -> None:
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    with pytest.raises(BadOption, match=fault):
        make_queue(store, schema=schema, **settings)
    assert store.queues() == []


def test_a_column_may_have_any_name_that_firings_might_use_themselves(store: Store) -> None:
    names = ["#id", "#place", "#slice", "#bytes", "#tie"]
    queue = make_queue(store, schema=pa.schema([(name, pa.int64()) for name in names]))
    queue.load([dict.fromkeys(names, number) for number in range(20)])
    for at, name in enumerate(names):
        low = queue.fire(1, selector=f"`{name}` = {at}").messages
        high = queue.fire(1, order_by=f"`{name}` DESC").messages
        assert (low.column(name).to_pylist(), high.column(name).to_pylist()) == ([at], [19 - at])


@pytest.mark.parametrize(
    ("column", "setting", "value"),
    [("priority", "priority_aging", 5.0), ("fair_by", "fair_weights", {"a": 2.0})],
)
def test_a_setting_that_needs_another_one_is_refused_with_both_ways_out(
    store: Store, column: str, setting: str, value: Any
) -> None:
    settings = {column: "priority", setting: value}
    queue = make_queue(store, schema=SCHEMA, **settings)
    with pytest.raises(BadOption, match=f"{setting} without {column}: set both, or both to"):
        queue.admin.change_settings(**{column: None})
    queue.admin.change_settings(**dict.fromkeys(settings))


def test_a_column_of_these_names_is_a_timestamp(store: Store) -> None:
    with pytest.raises(SchemaMismatch, match="_hold_until"):
        make_queue(store, schema=pa.schema([("_hold_until", pa.int64())]))


def test_settings_and_columns_of_another_process_hold_at_once(store: Store) -> None:
    queue = make_queue(store, schema=pa.schema([("number", pa.int64()), ("who", pa.string())]))
    same = store.queue(queue.name)
    same.load([{"number": 1, "who": "a"}], ttl=0.0)
    same.load([{"number": 2, "who": "a"}, {"number": 3, "who": "b"}])
    same.admin.change_settings(priority="number")
    firing = queue.fire("all")
    assert numbers_of(firing.messages) == [3, 2]
    assert firing.messages.schema.names[:2] == ["number", "who"]
    with pytest.raises(BadOption, match="key"):
        queue.admin.change_settings(group="who")


def test_a_limit_of_bytes_over_several_queues_keeps_the_order_of_each(store, session) -> None:
    for name, settings in (("urgent", {"priority": "priority"}), ("plain", {})):
        queue = make_queue(store, name, SCHEMA, **settings)
        queue.load([{"number": n, "who": "a", "priority": n} for n in range(100)])
    half = store.view("slices").column("bytes").to_pylist()[0] // 2
    reader, start = session(queues="urgent,plain"), Offset("both", 0)

    messages = read_table(reader.plan(start, reader.next(start, None, half)))

    urgent, plain = (
        numbers_of(messages.filter(pc.field("_queue") == name)) for name in ("urgent", "plain")
    )
    assert 40 <= len(messages) <= 50
    assert 0 < len(urgent) < len(messages)
    assert urgent == list(range(100 - len(urgent), 100))
    assert plain == list(range(len(plain)))


def _made_older(store: Store, seconds: float) -> None:
    """Let messages that are loaded now be *seconds* old."""
    ago = int(seconds * 1e6)
    with store.catalog.engine.begin() as connection:
        connection.execute(update(segments).values(loaded_at=segments.c.loaded_at - ago))
        both = {name: slices.c[name] - ago for name in ("loaded_at", "moved_at")}
        connection.execute(update(slices).values(both))
