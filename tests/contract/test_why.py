"""Why messages of a queue are not handled: from a real store, with its consumers and its rules."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from sqlalchemy import insert, update

from queue_core import Breaker, ConsumerPool, Retry, constant, limit
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.holders import interests
from queue_core.catalog.record_tables import breakers, jobs, samples
from queue_core.catalog.tables import slices
from queue_core.errors import QueueTaken
from queue_core.values.model import INLINE
from queue_core.verbs.quarantine import set_apart
from queue_core.watching import blocked, present, readings
from queue_core.watching.metric import PROBLEMS
from queue_core.watching.problems import find, of_queue, why
from tests.command_line import answer, refusal
from tests.contract.pools import Recorder
from tests.factories import drop, make_filled, make_queue, orders
from tests.waiting import until

pytestmark = pytest.mark.each_catalog

LONG_AGO = 7200 * 1_000_000


def reasons(queue):
    """The reasons of a queue, the weightiest first, as `ignis why` finds them."""
    store = queue.store
    figures = present.read_queue(store.catalog, queue.name)
    rules = blocked.look(store.catalog, store.storage.uri, queue.info)
    return why(figures, rules)


def kinds(queue):
    return [each.kind for each in reasons(queue)]


def problems(store):
    return {(each.kind, each.queue) for each in find(present.read(store.catalog, store.storage))}


def connected(queue):
    return present.read_queue(queue.store.catalog, queue.name).consumers


def age(queue, seconds):
    """Make the messages of a queue older."""
    store, own = queue.store, slices.c.queue_id == queue.info.id
    times = {name: slices.c[name] - int(seconds * 1e6) for name in ("loaded_at", "moved_at")}
    older = update(slices).where(own).values(times)
    store.catalog.write(lambda connection: connection.execute(older))


def test_a_queue_without_a_consumer_is_a_problem_after_some_minutes(store):
    queue, other = make_filled(store, 3), make_filled(store, 3, "clicks")

    assert kinds(queue) == ["unconsumed"]
    assert problems(store) == {("tasks", None)}, "they have just come"

    for each in (queue, other):
        age(each, 200)
    handler = Recorder()
    handler.open.clear()
    with ConsumerPool(store, "clicks", handler, concurrency=1, tasks=["sample"]):
        handler.wait()
        assert (connected(queue), connected(other)) == (0, 1)
        assert ("unconsumed", "orders") in problems(store)
        assert ("unconsumed", "clicks") not in problems(store)
        handler.open.set()
    assert connected(other) == 0, "a pool that has stopped is not connected"


def test_a_queue_that_is_fired_from_by_hand_has_a_rate_between_two_minutes(store):
    """The row of a minute is up to 80 seconds old when the next one comes."""
    queue = make_filled(store, 3)
    age(queue, 200)
    minute = {"seconds": 60, "queue_id": queue.info.id, "elapsed": 60_000_000, "new_fired": 30}
    minute["taken_at"] = store.catalog.now() - 75_000_000
    store.catalog.write(lambda connection: connection.execute(insert(samples).values(minute)))

    assert ("unconsumed", "orders") not in problems(store)

    earlier = update(samples).values(taken_at=samples.c.taken_at - 15_000_000)
    store.catalog.write(lambda connection: connection.execute(earlier))
    assert ("unconsumed", "orders") in problems(store)


def test_consumers_of_each_kind_are_connected(store):
    queue, other = make_queue(store), make_queue(store, "clicks")
    queue.load(orders(9))
    script = queue.fire(1)
    beating = store.consumer("till", beats=True)
    queue.fire(1, consumer=beating)
    query = store.consumer("query", beats=True)
    both = [queue.info.id, other.info.id]
    store.catalog.write(lambda connection: interests.show(connection, query, both))
    # It counts once, however it is known.
    queue.fire(1, consumer=query)

    assert (connected(queue), connected(other)) == (3, 1)

    queue.delete(script)
    silent = update(consumers).values(heartbeat_at=consumers.c.heartbeat_at - LONG_AGO)
    store.catalog.write(lambda connection: connection.execute(silent))
    assert (connected(queue), connected(other)) == (0, 0)
    texts = [each.text for each in reasons(queue) if each.kind == "silent"]
    assert len(texts) == 2
    assert texts[1].startswith("Consumer till (process ")
    assert "holds 1 message, and has sent no heartbeat for 2 h" in texts[1]


def test_a_query_that_shows_itself_holds_back_no_other_consumer(store):
    queue = make_filled(store, 3)
    query, pool = (store.consumer(name, beats=True) for name in ("query", "pool"))
    shows = [queue.info.id]
    store.catalog.write(lambda connection: interests.show(connection, query, shows))

    for claim in (interests.SHARED, interests.SINGLE, interests.EXCLUSIVE):
        how = {"priority": 1, "claim": claim}
        store.catalog.write(lambda c, how=how: interests.register(c, pool, shows, **how))
        assert len(queue.fire(1, consumer=pool)) == 1
    with pytest.raises(QueueTaken):
        queue.fire(1, consumer=query)
    (shown,) = (row for row in store.view("consumers").to_pylist() if row["consumer"] == "query")
    assert (shown["interested"], shown["claim"]) == ("orders", "shared")
    assert not len(store.admin.fsck())


def test_who_paused_a_queue_and_who_opened_a_breaker_are_named(store, ignis):
    queue, other = make_filled(store, 2), make_filled(store, 2, "clicks")
    ignis("pause", "clicks")
    other.admin.resume()
    ignis("pause", "orders")
    ignis("breaker", "open", "clicks")

    (paused, *_), (opened, *_) = reasons(queue), reasons(other)

    assert paused.kind == "paused"
    assert "@" in paused.text.split(" paused the queue ")[0]
    assert (opened.kind, opened.action) == ("breaker", "close_breaker")
    assert "@" in opened.text.split(" opened breaker clicks ")[0]
    assert opened.advice.endswith("ignis breaker auto clicks.")


def fails(_):
    raise ConnectionError("503")


def test_a_breaker_with_a_name_is_a_reason_of_its_queues_since_its_first_opening(store):
    queue = make_filled(store, 50, retry=None)
    make_queue(store, "clicks").load(orders(1))
    own = Breaker(of=2, pause=0.05, max_pause=0.05, name="hooks.example")

    with ConsumerPool(store, "orders", fails, concurrency=1, batch=1, breaker=own, tasks=[]):
        until(lambda: kinds(queue)[:1] == ["breaker"])
        (row,) = store.view("breakers").to_pylist()
        # Its probes fail, and each gives it a new state.
        until(lambda: store.view("breakers").to_pylist()[0]["since_at"] > row["since_at"])
        assert store.view("breakers").to_pylist()[0]["opened_at"] == row["opened_at"]
        assert reasons(queue)[0].text.startswith("Breaker hooks.example has been open for ")
        assert "breaker" not in kinds(store.queue("clicks"))
        assert ("breaker", "orders") in problems(store)
        # It opened two hours ago, and a person has opened it just now.
        long_ago = update(breakers).values(opened_at=breakers.c.opened_at - LONG_AGO)
        store.catalog.write(lambda connection: connection.execute(long_ago))
        assert reasons(queue)[0].text.startswith("Breaker hooks.example has been open for 2 h")
        store.admin.breaker("hooks.example").open()
        who, ago = reasons(queue)[0].text.split(" opened breaker hooks.example ")
        assert ("@" in who, ago.endswith(" s ago.")) == (True, True)


def test_who_holds_messages_of_a_handler_that_hangs_is_named_with_the_act(store, ignis):
    queue = make_filled(store, 40, sweep_after=1200.0)
    queue.fire(40, consumer=store.consumer("till", beats=True))
    assert kinds(queue) == [], "they have just been fired"

    fired_before(store, 300)
    told = ignis("why", "orders").stdout
    assert "- Consumer till (process " in told
    assert " holds 40 messages, the first for 5 min" in told
    assert "If its handler hangs, take them back with: ignis reload orders --consumer till" in told
    assert ("busy", "orders") not in problems(store), "it may work"

    fired_before(store, 1000)
    (stuck,) = (each for each in find(present.read(store.catalog, store.storage)) if each.queue)
    assert stuck.kind == "stuck"
    assert ": till (process " in stuck.text
    assert (stuck.action, stuck.fields) == ("reload", {"all": "1", "consumer": "till"})
    assert kinds(queue) == ["stuck"]
    assert ignis("reload", "orders", "--consumer", "till", "--all", "--yes").exit_code == 0
    assert (present.read_queue(store.catalog, "orders").waiting, kinds(queue)) == (
        40,
        ["unconsumed"],
    )


def fired_before(store, seconds):
    """Make all firings older."""
    in_flight = slices.c.fired_at.is_not(None)
    older = update(slices).where(in_flight).values(fired_at=slices.c.fired_at - int(seconds * 1e6))
    store.catalog.write(lambda connection: connection.execute(older))


@pytest.mark.spoiled
def test_messages_that_cannot_leave_the_sideline_are_not_overdue(store):
    """One of them is damaged, and a consumer holds the other."""
    queue = make_queue(store, retry=Retry(attempts=9, backoff=constant(3600)))
    spoiled = queue.load(orders(1))[0].as_py() >> 20
    queue.load(orders(1, 1))
    queue.sideline(queue.fire("all"))
    earlier = update(slices).values(due_at=slices.c.due_at - LONG_AGO)
    store.catalog.write(lambda connection: connection.execute(earlier))
    assert ("overdue", "orders") in problems(store)

    store.catalog.write(lambda connection: set_apart(connection, [f"{INLINE}{spoiled}"]))
    assert ("overdue", "orders") in problems(store)
    assert len(queue.fire("all", magazine="sideline")) == 1
    assert ("overdue", "orders") not in problems(store)


def test_messages_that_no_selector_wants_are_said_to_be_left(store, ignis):
    queue = make_filled(store, 10)
    age(queue, 4200)
    none = {"selector": "number > 1000", "tasks": []}
    with ConsumerPool(store, "orders", Recorder(), concurrency=1, **none):
        until(lambda: connected(queue) == 1)
        told = ignis("why", "orders").stdout
        assert ("old", "orders") in problems(store)
    assert "- 1 consumer is connected, but a message has waited for 1 h 10 min.\n" in told
    assert "The selector or the limits of a consumer, which the catalog does not know" in told


def test_the_failed_jobs_of_a_queue_are_among_its_problems(store, ignis):
    queue, other = make_queue(store, retry=None), make_queue(store, "clicks")
    queue.load(orders(2))
    queue.sideline(queue.fire(2).ids, "no")
    job = queue.start_shovel(to="clicks")
    assert of_queue(present.read_queue(store.catalog, "orders")) == []
    before = update(jobs).values(begun_at=jobs.c.begun_at - LONG_AGO)
    store.catalog.write(lambda connection: connection.execute(before))
    (still,) = of_queue(present.read_queue(store.catalog, "orders"))
    assert f"{job} does not move: no process that runs the side tasks" in still.text
    drop(other)

    assert [each["kind"] for each in answer(ignis("--json", "problems", "orders"))] == ["job"]
    assert ("job", "orders") in problems(store)
    make_queue(store, "idle")
    assert ignis("problems", "idle").stdout == "there are no problems\n"


def test_the_limit_of_a_queue_is_a_reason_and_no_problem(store):
    queue = make_filled(store, 60, limits=[limit(per_second=0.01, window="1h")])
    consumer = store.consumer("till", beats=True)
    queue.delete(queue.fire(30, consumer=consumer))
    assert "limit" not in kinds(queue), "it has tokens left"
    queue.fire(30, consumer=consumer)

    (reached,) = (each for each in reasons(queue) if each.kind == "limit")

    assert "limit(per_second=0.01, window=3600.0) is reached: it gives more in " in reached.text
    assert "limit" not in {kind for kind, _ in problems(store)}
    queue.admin.change_settings(limits=[limit(in_flight=6)])
    (reached,) = (each for each in reasons(queue) if each.kind == "limit")
    assert "6 messages are in flight" in reached.text


HELD = pa.schema(
    [("number", pa.int64()), ("tenant", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)


def held_orders(count, tenant="acme", hours=0.0):
    at = datetime.now(UTC) + timedelta(hours=hours)
    rows = {"number": range(count), "tenant": [tenant] * count, "at": [at] * count}
    return pa.table(rows, schema=HELD)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group": "tenant"}, "behind one of its tenant that is in flight"),
        ({"limits": [limit("tenant", in_flight=1)]}, "is reached for each value that waits"),
        ({"limits": [limit("tenant", in_flight=1)], "group": "tenant"}, "is in flight or held"),
        ({"hold_until": "at"}, "is held by its at, the first for 1 h 59 min more."),
        ({"hold_until": "at", "fair_by": "tenant"}, "is held by its at, the first for 1 h"),
    ],
)
def test_the_rule_that_holds_back_each_message_is_found(store, settings, said):
    queue = make_queue(store, schema=HELD, shards=2, **settings)
    by_time = "hold_until" in settings
    if not by_time:
        queue.load(held_orders(1))
        queue.fire(1, consumer=store.consumer("till", beats=True))
    queue.load(held_orders(5, hours=3))
    queue.load(held_orders(5, hours=2))

    found = [each.text for each in reasons(queue) if each.kind in ("group", "limit", "later")]

    assert [said in text for text in found] == [True], found
    # A message that may be fired is enough for no reason.
    queue.load(held_orders(1, tenant="globex", hours=-1))
    assert not {"group", "limit", "later"}.intersection(kinds(queue))


@pytest.mark.parametrize("column", [False, True])
def test_that_all_have_expired_is_found(store, column):
    settings = {"expires_at": "at"} if column else {"message_expiry": 600.0}
    queue = make_queue(store, schema=HELD, group="tenant", **settings)
    queue.load(held_orders(3, hours=-1 if column else 1))
    if not column:
        assert "expired" not in kinds(queue)
        age(queue, 900)

    (found,) = (each for each in reasons(queue) if each.kind == "expired")

    assert found.text == "Each message that waits has expired."
    assert "untaken" not in kinds(queue)
    queue.load(held_orders(1, hours=1))
    assert "expired" not in kinds(queue)


def test_that_all_were_fired_too_often_is_found(store):
    queue = make_filled(store, 3, max_deliveries=2)
    for _ in range(2):
        assert not {"max_deliveries"}.intersection(kinds(queue))
        queue.reload(queue.fire("all"))

    (found,) = (each for each in reasons(queue) if each.kind == "max_deliveries")

    assert "was fired 2 times, its max_deliveries" in found.text
    assert "ignis sweep" in found.advice
    # The advice helps.
    queue.admin.change_settings(max_deliveries=3)
    assert len(queue.fire("all")) == 3


def test_messages_of_the_sideline_that_return_later_are_a_reason(store):
    queue = make_filled(store, 2, retry=Retry(attempts=5, backoff=constant(600)))
    queue.sideline(queue.fire(2).ids, "no")

    (later,) = reasons(queue)

    assert "2 messages of the sideline return later, the first in 9 min" in later.text


@pytest.mark.each_catalog(False)
def test_the_command_line_tells_problems_and_reasons(store, ignis):
    queue, other = make_queue(store), make_queue(store, "clicks")
    for each in (queue, other):
        each.load(orders(3))
        age(each, 1000)
    other.admin.pause()

    listed = ignis("problems")

    assert listed.exit_code == 0, "none is critical"
    assert "warning   Queues without a consumer: 1 queue, 3 messages" in listed.stdout
    assert "  orders  No consumer is connected, and 3 messages wait." in listed.stdout
    found = {(each["kind"], each["queue"]) for each in answer(ignis("--json", "problems"))}
    assert found == problems(store) == {
        ("unconsumed", "orders"), ("paused", "clicks"), ("tasks", None)
    }  # fmt: skip
    (only,) = answer(ignis("problems", "clicks", "--json"))
    assert (only["kind"], only["messages"], only["action"]) == ("paused", 3, "resume")
    assert "no queue 'order'; did you mean 'orders'?" in refusal(ignis("problems", "order"))

    told = ignis("why", "orders").stdout
    assert "orders: 3 waiting, the oldest for 16 min" in told
    assert "0 consumers connected\n- No consumer is connected, and 3 messages wait.\n" in told
    (told,) = answer(ignis("--json", "why", "orders"))
    assert (told["queue"], told["waiting"], told["consumers"]) == ("orders", 3, 0)
    assert [row["queue"] for row in answer(ignis("--json", "why", "*"))] == ["clicks", "orders"]
    assert "no queue matches 'x*'" in refusal(ignis("why", "x*"))
    (reason,) = told["reasons"]
    assert (reason["kind"], reason["severity"]) == ("unconsumed", "warning")
    queue.fire(3)
    assert ignis("why", "orders").stdout.endswith("No message waits.\n")

    spoiled = make_queue(store, "spoiled").load(orders(1))[0].as_py() >> 20
    store.catalog.write(lambda connection: set_apart(connection, [f"{INLINE}{spoiled}"]))
    assert ignis("problems").exit_code == ignis("problems", "spoiled").exit_code == 1
    assert ignis("problems").stdout.startswith("critical  Damaged messages: 1 queue, 1 message\n")
    assert ignis("problems", "orders").stdout == "there are no problems\n"


def test_a_queue_that_bytes_or_damaged_messages_fill_is_full(store):
    def told(name):
        figures = present.read_queue(store.catalog, name)
        return [each.text for each in of_queue(figures) if each.kind == "full"]

    big = make_filled(store, 4, "big")
    size = store.view("queues", "big")["bytes"][0].as_py()
    big.admin.change_settings(max_bytes=2 * size)
    assert told("big") == []
    big.admin.change_settings(max_bytes=size)
    (text,) = told("big")
    assert text.startswith("The queue is full: ")
    assert text.endswith(". Loads wait.")
    big.fire(4)
    assert told("big") == [text], "messages in flight have bytes, too"
    assert ("full", "big") in problems(store)
    big.admin.change_settings(room="on_fire")
    assert told("big") == []
    assert ("full", "big") not in problems(store)

    torn = make_queue(store, "torn", max_size=3, overflow="fail")
    spoiled = torn.load(orders(2))[0].as_py() >> 20
    torn.load(orders(1))
    store.catalog.write(lambda connection: set_apart(connection, [f"{INLINE}{spoiled}"]))
    assert told("torn") == ["The queue is full: 3 of 3 messages. Loads are refused."]
    assert ("full", "torn") in problems(store)


def test_the_metrics_have_the_same_problems(store):
    for name in ("orders", "clicks"):
        queue = make_filled(store, 1, name)
        age(queue, 1000)
    queue.admin.pause()

    values = readings.read(store)[PROBLEMS]

    assert dict(values) == {(queue or "", kind): 1 for kind, queue in problems(store)}
    assert (("clicks", "paused"), 1) in values


def test_a_deactivation_asks_and_says_what_waits(store, ignis):
    queue = make_filled(store, 7)
    handler = Recorder()
    handler.open.clear()
    with ConsumerPool(store, "orders", handler, concurrency=1, batch=1, tasks=[]):
        handler.wait()
        refused = ignis("deactivate", "orders", input="n\n")
        handler.open.set()

    assert refused.exit_code == 1
    assert "for good, with 6 messages waiting and 1 consumer connected?" in refused.stderr
    assert store.queue("orders").info.deactivated_at is None
    queue.load(orders(2, 10))
    assert ignis("deactivate", "orders", input="y\n").exit_code == 0
    (only,) = reasons(store.queue("orders"))
    assert only.text.endswith(" messages wait in it.")
    assert ignis("deactivate", "orders").exit_code == 0, "it is no further question"
