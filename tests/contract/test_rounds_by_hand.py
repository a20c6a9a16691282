"""Acts on many messages work in short rounds, between which others use the store."""

import pytest

from queue_core.errors import BadOption
from queue_core.selection import rounds
from queue_core.support.faults import InjectedFault, arm
from queue_core.upkeep.tasks.compaction import compact
from tests.factories import load_singly, make_filled, make_queue, numbers_of, orders


@pytest.fixture(autouse=True)
def _small_rounds(monkeypatch):
    monkeypatch.setattr(rounds, "PART_SLICES", 3)
    monkeypatch.setattr(rounds, "PART_MESSAGES", 4)
    monkeypatch.setattr(rounds, "LONG_PART_SLICES", 4)


def in_order(queue, magazine="main"):
    return numbers_of(queue.browse(magazine=magazine))


def once(act):
    """Call *act* the first time, and do nothing later."""
    left = [act]
    return lambda: left.pop()() if left else None


def moved(store, task="by_hand"):
    return [row["moved"] for row in store.view("reports").to_pylist() if row["task"] == task]


@pytest.mark.parametrize("load", [load_singly, lambda queue, count: queue.load(orders(count))])
def test_each_round_changes_few_messages_and_all_are_changed_in_their_order(store, load):
    queue = make_queue(store, shards=1)
    load(queue, 11)
    chosen = queue.choose("all")

    assert chosen.sideline() == 11
    assert in_order(queue, "sideline") == list(range(11))
    assert chosen.requeue() == 11
    assert in_order(queue) == list(range(11))
    firing = queue.fire("all")
    assert len(firing) == 11
    with pytest.raises(BadOption, match="nobody"):
        queue.choose("all").reload(consumer="nobody")
    assert queue.choose("all").reload(consumer=store.consumer().name) == 11
    assert in_order(queue) == list(range(11))
    assert queue.choose("all").delete() == 11
    assert queue.choose("all").count() == 0
    assert len(moved(store)) >= 4 * 3
    assert max(moved(store)) <= 4


def test_others_fire_between_two_rounds_and_keep_what_they_have(store, monkeypatch):
    queue = make_filled(store, 12, each=1, shards=1)
    fired = []

    def give_way():
        fired.append(numbers_of(queue.fire(1).messages))

    chosen = queue.choose(selector="number >= 0")
    monkeypatch.setattr(store.catalog, "give_way", give_way)

    # Each firing takes the next message, which a later round would have taken.
    assert chosen.delete() == 9
    assert fired == [[3], [6], [9]]


@pytest.mark.parametrize("act", ["delete", "sideline"])
def test_messages_that_come_back_between_two_rounds_stay(store, monkeypatch, act):
    """Also if the act looks again for others, which were in its hands and have left."""
    queue = make_filled(store, 12, each=1, shards=1)
    firing = queue.fire(4)
    chosen = queue.choose("all")

    def give_way():
        queue.fire(1)
        queue.reload(firing)

    monkeypatch.setattr(store.catalog, "give_way", once(give_way))

    # Its first round took 4, 5 and 6.
    assert getattr(chosen, act)() == 7
    assert in_order(queue) == [0, 1, 2, 3, 7]


@pytest.mark.parametrize("act", ["delete", "sideline", "requeue", "reload"])
def test_an_act_on_counted_messages_changes_no_others(store, act):
    queue = make_filled(store, 12, each=1, shards=1)
    holder = {"consumer": store.consumer().name} if act == "reload" else {}
    firing = queue.fire(6)
    others = firing.ids[:3]
    if act == "requeue":
        queue.sideline(firing.ids[3:])
    elif act == "reload":
        queue.reload(firing.ids[:3])

    counted = queue.choose("all").only(act, **holder)
    number = queue.choose("all").count(act, **holder)
    if act == "requeue":
        queue.sideline(others)
    elif act == "reload":
        queue.fire(3)
    else:
        queue.reload(others)

    assert len(counted.ids) == number
    assert getattr(counted, act)(**holder) == number
    left = queue.choose("all").only(act, **holder).ids.to_pylist()
    assert left == sorted(others.to_pylist())


@pytest.mark.parametrize("act", ["delete", "sideline", "requeue"])
def test_counted_messages_that_come_back_are_left_alone(store, act):
    """As when two persons count the same failures, and one of them redrives them twice."""
    queue = make_filled(store, 12, each=1, shards=2)
    if act == "requeue":
        queue.sideline(queue.fire("all"))
    back = queue.browse(magazine="sideline" if act == "requeue" else "main")["_message_id"][:4]
    counted = queue.choose("all").only(act)
    assert len(counted.ids) == 12
    if act == "requeue":
        queue.choose(back).requeue()
        queue.sideline(queue.fire(4))
    else:
        queue.choose(back).sideline()
        queue.choose(back).requeue()

    assert counted.count(act) == getattr(counted, act)() == 8
    place = "sideline" if act == "requeue" else "main"
    assert sorted(queue.browse(magazine=place)["_message_id"].to_pylist()) == back.to_pylist()


def test_an_act_changes_each_message_once(store, monkeypatch):
    queue = make_queue(store, shards=1)
    ids = load_singly(queue, 9)
    rounds_done = []

    def give_way():
        rounds_done.append(1)
        if len(rounds_done) == 1:
            queue.fire(1)
        elif len(rounds_done) == 2:
            assert queue.choose(ids[4]).requeue() == 1

    chosen = queue.choose("all")
    monkeypatch.setattr(store.catalog, "give_way", give_way)

    # The second round found two of its three messages, and somebody has put one of them back.
    assert chosen.sideline() == 8
    assert sorted(in_order(queue)) == [3, 4]


def test_a_compaction_between_two_rounds_keeps_no_message_from_an_act(store, monkeypatch):
    monkeypatch.setattr(rounds, "PART_SLICES", 30)
    monkeypatch.setattr(rounds, "PART_MESSAGES", 30)
    queue = make_filled(store, 160, each=1, shards=1)
    chosen, compacted = queue.choose("all"), []
    compacting = once(lambda: compacted.append(compact(store.catalog, store.storage, queue.info)))
    monkeypatch.setattr(store.catalog, "give_way", compacting)

    assert chosen.sideline() == 160
    assert compacted[0] > 100
    assert in_order(queue, "sideline") == list(range(160))


@pytest.mark.parametrize("others", ["fire", "compact", "nothing"])
def test_the_failures_of_an_act_are_of_the_messages_that_it_has_moved(store, monkeypatch, others):
    queue = make_filled(store, 24, each=1, shards=2)
    for number in (1, 9, 10):
        queue.sideline(queue.fire(1, selector=f"number = {number}").ids)
    queue.shovel()
    taken = set()

    def give_way():
        if others == "fire":
            taken.update(queue.fire(1).ids.to_pylist())
        elif others == "compact":
            compact(store.catalog, store.storage, queue.info)

    chosen = queue.choose("all", magazine="main")
    monkeypatch.setattr(store.catalog, "give_way", give_way)
    ids = set(chosen.ids.to_pylist())
    count = chosen.sideline("as it was")

    found = [row for row in queue.failures().to_pylist() if row["kind"] == "by_hand"]
    assert bool(taken) == (others == "fire")
    assert sorted(row["message_id"] for row in found) == sorted(ids - taken)
    assert {row["reason"] for row in found} == {"as it was"}
    aside = queue.browse(magazine="sideline").to_pylist()
    attempts = {row["_message_id"]: row["_attempt"] for row in aside}
    assert {row["message_id"]: row["attempt"] for row in found} == attempts
    assert len(set(attempts.values())) == 2
    assert sum(moved(store)) == count == len(found)


def test_an_interrupted_act_is_repeated_for_the_others(store):
    queue = make_filled(store, 9, each=1, shards=1)
    chosen = queue.choose("all")
    arm("intervene.committed:2=raise")
    with pytest.raises(InjectedFault):
        chosen.delete()
    arm(None)

    assert in_order(queue) == [6, 7, 8]
    assert chosen.delete() == 3
    assert moved(store) == [3, 3, 3], "each round is one transaction"


def test_a_full_queue_takes_as_many_as_it_has_room_for(store):
    queue = make_filled(store, 7, each=1, shards=1, max_size=7)
    assert queue.choose("all").sideline() == 7
    queue.load(orders(2, 100))
    assert queue.choose("all", magazine="sideline").requeue() == 5
    assert queue.choose("all", magazine="sideline").requeue() == 0
    assert in_order(queue) == [100, 101, 0, 1, 2, 3, 4]
    assert in_order(queue, "sideline") == [5, 6]


@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize("selector", [None, "number >= 2"])
def test_a_shovel_by_a_selector_or_with_a_limit_works_in_rounds(store, selector, limit):
    queue = make_filled(store, 14, each=1, shards=1)
    queue.sideline(queue.fire("all").ids)

    count = limit or (14 if selector is None else 12)
    assert queue.shovel(limit, selector=selector) == count
    first = 0 if selector is None else 2
    assert in_order(queue) == list(range(first, first + count))
    if selector or limit:
        assert max(moved(store, "shovel")) <= 4
        assert sum(moved(store, "shovel")) == count
