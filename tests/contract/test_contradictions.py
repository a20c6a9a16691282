"""Settlements that contradict themselves are refused, however they were made."""

import pyarrow as pa
import pytest

from queue_core.errors import BadOption, BadOutcome
from queue_core.values.failure_kinds import REASON_LENGTH, REASONS
from queue_core.values.ids import IdSet
from queue_core.values.outcomes import Settlement
from queue_core.values.waits import WAITS
from tests.dump import dump
from tests.factories import make_filled, make_queue


def wait(message, not_before=None, delay=None, dead=None):
    return {"message_id": message, "not_before": not_before, "delay": delay, "dead": dead}


def reason(message, kind, text=None):
    return pa.Table.from_pylist([{"message_id": message, "kind": kind, "reason": text}], REASONS)


def waits(*rows):
    return pa.Table.from_pylist(list(rows), WAITS)


#: A settlement of two messages by its fields, and what is wrong with it.
WRONG = {
    "deleted and sidelined": lambda a, _b, _one: {"deleted": a, "sidelined": a},
    "deleted and reloaded": lambda a, _b, _one: {"deleted": a, "reloaded": a},
    "sidelined and reloaded": lambda a, _b, _one: {"sidelined": a, "reloaded": a},
    "has two times": lambda a, _b, one: {
        "reloaded": a,
        "waits": waits(wait(one, delay=5_000_000), wait(one, delay=50_000_000)),
    },
    "both not_before and delay": lambda a, _b, one: {
        "sidelined": a,
        "waits": waits(wait(one, not_before=1, delay=1)),
    },
    "negative or longer": lambda a, _b, one: {"reloaded": a, "waits": waits(wait(one, delay=-1))},
    "outside of the years": lambda a, _b, one: {
        "reloaded": a,
        "waits": waits(wait(one, not_before=1 << 60)),
    },
    "dead=true is reloaded": lambda a, _b, one: {
        "reloaded": a,
        "waits": waits(wait(one, dead=True)),
    },
    "waits has a row without a message_id": lambda a, _b, _one: {
        "reloaded": a,
        "waits": waits(wait(None, delay=1)),
    },
    "waits: expected a pyarrow table": lambda a, _b, one: {
        "reloaded": a,
        "waits": waits(wait(one, delay=1)).drop_columns(["dead"]),
    },
    "use one word": lambda a, _b, one: {"sidelined": a, "reasons": reason(one, "A B")},
    f"{REASON_LENGTH + 1} characters": lambda a, _b, one: {
        "sidelined": a,
        "reasons": reason(one, "declined", "x" * (REASON_LENGTH + 1)),
    },
    "deleted: expected an IdSet, got list": lambda _a, _b, one: {"deleted": [one]},
}


@pytest.mark.parametrize("told", WRONG)
def test_a_settlement_by_its_fields_is_checked(store, told):
    queue = make_filled(store, 4)
    firing = queue.fire(2)
    one, other = firing.ids.to_pylist()
    wrong = Settlement(**WRONG[told](IdSet.of([one]), IdSet.of([other]), one))
    before = dump(store)

    with pytest.raises(BadOutcome, match=told):
        queue.settle(wrong, firing)
    assert dump(store) == before


@pytest.mark.parametrize("outcome", ["reload", "sideline"])
def test_a_message_has_one_time(store, outcome):
    queue = make_filled(store, 2)
    firing = queue.fire(1)
    [message] = firing.ids.to_pylist()
    twice = pa.table({"_message_id": [message] * 2, "outcome": [outcome] * 2})

    with pytest.raises(BadOutcome, match=f"message {message} has two times"):
        Settlement.of(twice.append_column("delay", pa.array([5.0, 50.0])))
    with pytest.raises(BadOutcome, match="has two times"):
        Settlement.merge(
            Settlement.of(twice[:1].append_column("delay", pa.array([delay])))
            for delay in (5.0, 50.0)
        )
    same = Settlement.of(twice.append_column("delay", pa.array([5.0, 5.0])))
    assert queue.settle(same, firing) == 1
    assert store.admin.fsck().num_rows == 0


@pytest.mark.parametrize("wrong", [{"_message_id": [1]}, [1], None, pa.table({"_message_id": [1]})])
def test_what_is_no_settlement_is_refused(store, wrong):
    queue = make_queue(store)
    with pytest.raises(BadOutcome, match=r"got \w+; build one with Settlement.of"):
        queue.settle(wrong)


@pytest.mark.parametrize("wrong", [[{"_message_id": 1, "outcome": "delete"}], None, "delete"])
def test_a_settlement_is_made_from_a_table(wrong):
    with pytest.raises(BadOutcome, match="from a pyarrow Table or RecordBatch"):
        Settlement.of(wrong)


@pytest.mark.parametrize("name", ["_message_id", "outcome", "delay"])
def test_a_column_is_there_once(name):
    table = pa.table({"_message_id": [1], "outcome": ["reload"], "delay": [1.0]})
    with pytest.raises(BadOutcome, match=f"has the column '{name}' twice"):
        Settlement.of(table.append_column(name, table.column(name)))


def test_a_firing_is_told_that_a_name_is_no_consumer(store):
    queue = make_queue(store)
    store.consumer("till")
    with pytest.raises(BadOption, match=r"consumer='till': use what Store.consumer"):
        queue.fire(1, consumer="till")
