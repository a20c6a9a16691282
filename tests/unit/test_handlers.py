"""What becomes of messages, by what a handler does with them; without Spark."""

import datetime as dt
import signal
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyspark_ignis import batch_handler
from queue_core.handlers.deadline import Deadline
from queue_core.handlers.handler import HandlerRunner, takes_batches

DELETED = ("delete",)
REJECTED = ("sideline", "rejected", None)


def late(seconds):
    return ("sideline", "timeout", f"not done after {seconds} s")


class Declined(Exception):
    pass


class DeclinedForGood(Declined):
    pass


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def messages(count=3, **columns):
    return pa.record_batch({"_message_id": range(count), **columns})


def outcomes(handler, batch=None, **how):
    """``(outcome, kind, reason)`` of each message, in order."""
    settled = list(HandlerRunner(handler, **how).run([messages() if batch is None else batch]))
    assert [row["_message_id"] for part in settled for row in part.to_pylist()] == (
        (messages() if batch is None else batch)["_message_id"].to_pylist()
    )
    told = [tuple(row.values())[1:] for part in settled for row in part.to_pylist()]
    # What is deleted has no reason, unless its failure is ignored.
    return [verdict[:1] if verdict[1:] == (None, None) else verdict for verdict in told]


def raising(error):
    def handler(_):
        raise error

    return handler


@pytest.mark.parametrize("true", [True, np.True_])
def test_true_deletes(true):
    assert outcomes(lambda _: true) == [DELETED] * 3


@pytest.mark.parametrize("false", [False, np.False_])
def test_false_sidelines(false):
    assert outcomes(lambda _: false) == [REJECTED] * 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Declined("no funds"), "Declined: no funds"),
        (Declined(), "Declined"),
        (KeyError("customer"), "KeyError: 'customer'"),
        (OSError("no file caf\udce9"), "OSError: no file caf\\udce9"),
        (StopIteration("early"), "StopIteration: early"),
        (Unspeakable(), "Unspeakable: (its message cannot be shown)"),
    ],
)
def test_an_exception_sidelines_with_its_type_and_message(error, reason):
    assert outcomes(raising(error)) == [("sideline", "exception", reason)] * 3
    assert outcomes(batch_handler(raising(error))) == [("sideline", "exception", reason)] * 3


@pytest.mark.parametrize("error", [Declined("x"), DeclinedForGood("x")])
@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_an_ignorable_exception_deletes_and_says_why(error, mark):
    told = f"{type(error).__name__}: x"

    assert (
        outcomes(mark(raising(error)), ignorable=(Declined,)) == [("delete", "exception", told)] * 3
    )


def test_a_superclass_of_an_ignorable_exception_sidelines():
    handler = raising(Declined("x"))

    assert (
        outcomes(handler, ignorable=(DeclinedForGood,))
        == [("sideline", "exception", "Declined: x")] * 3
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_what_ends_a_process_is_not_swallowed(error, mark):
    with pytest.raises(type(error)):
        outcomes(mark(raising(error)))


@pytest.mark.parametrize("strange", [None, 1, "true", 0.0, [True]])
def test_what_is_no_bool_sidelines_and_says_so(strange):
    told = f"not a bool: the handler returned {type(strange).__name__}"

    assert outcomes(lambda _: strange) == [("sideline", "undecided", told)] * 3


def test_each_message_has_its_own_outcome():
    def handler(message):
        if message["n"] == 1:
            raise Declined(message["n"])
        return message["n"] != 2

    assert outcomes(handler, messages(4, n=range(4))) == [
        DELETED,
        ("sideline", "exception", "Declined: 1"),
        REJECTED,
        DELETED,
    ]


def test_a_message_is_a_dict_of_plain_python():
    seen = []
    at = dt.datetime(2013, 1, 1, 5, 17, tzinfo=dt.UTC)
    row = {
        "_message_id": 0,
        "text": "a",
        "at": at,
        "day": at.date(),
        "local": at.replace(tzinfo=None),
        "nothing": None,
        "items": [{"name": "pen", "tags": {"colour": "red"}}],
    }
    item = pa.struct([("name", pa.string()), ("tags", pa.map_(pa.string(), pa.string()))])
    schema = pa.schema(
        [
            ("_message_id", pa.int64()),
            ("text", pa.string()),
            # As Spark hands it over: in the session's time zone.
            ("at", pa.timestamp("us", "America/New_York")),
            ("day", pa.date32()),
            ("local", pa.timestamp("us")),
            ("nothing", pa.timestamp("us", "UTC")),
            ("items", pa.list_(item)),
        ]
    )

    outcomes(lambda m: seen.append(m) or True, pa.RecordBatch.from_pylist([row], schema))

    assert seen == [row]
    assert seen[0]["at"].tzinfo is dt.UTC


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_value_that_python_cannot_hold_costs_its_own_message_only(kind, place):
    times = [0] * 7
    times[place] = 1 << 60
    settled = outcomes(lambda _: True, messages(7, at=pa.array(times, kind)))

    outcome, kind, reason = settled.pop(place)
    assert (outcome, kind) == ("sideline", "unreadable")
    assert "out of range" in reason
    assert settled == [DELETED] * 6


def test_booleans_of_a_batch_decide_each_message():
    batch = messages(4, n=range(4))

    assert outcomes(batch_handler(lambda b: pc.less(b["n"], 2)), batch) == [
        DELETED,
        DELETED,
        REJECTED,
        REJECTED,
    ]


@pytest.mark.parametrize(
    "given",
    [
        [True, False, None],
        pa.chunked_array([[True], [False, None]]),
        np.array([True, False, None], dtype=object),
    ],
)
def test_a_batch_may_be_decided_by_anything_boolean_and_null_is_no_decision(given):
    assert outcomes(batch_handler(lambda _: given)) == [
        DELETED,
        REJECTED,
        ("sideline", "undecided", None),
    ]


@pytest.mark.parametrize("make", [pa.table, pa.record_batch])
def test_a_table_of_outcomes_may_give_reasons(make):
    given = {
        "outcome": ["delete", "sideline", "sideline", "reload"],
        "reason": ["left out", "too late", None, "left out"],
    }

    assert outcomes(batch_handler(lambda _: make(given)), messages(4)) == [
        DELETED,
        ("sideline", "rejected", "too late"),
        REJECTED,
        ("reload",),
    ]


def test_a_table_of_outcomes_may_give_kinds():
    given = {"outcome": ["delete", "sideline", "sideline"], "kind": ["Not used", "late", None]}

    assert outcomes(batch_handler(lambda _: pa.table(given))) == [
        DELETED,
        ("sideline", "late", None),
        REJECTED,
    ]


def test_a_table_of_outcomes_needs_no_reasons():
    given = pa.table({"outcome": pa.array(["delete", "sideline", "delete"]).dictionary_encode()})

    assert outcomes(batch_handler(lambda _: given)) == [
        DELETED,
        REJECTED,
        DELETED,
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "gave a NoneType, not one verdict per message"),
        ([True], "gave 1 verdicts for 3 messages"),
        ([1, 2, 3], "gave int64 values"),
        (pa.table({"outcomes": ["delete"] * 3}), "did you mean 'outcomes'?"),
        (
            pa.table({"outcome": ["delete", "drop", "delete"]}),
            "not one of delete, sideline, reload",
        ),
        (pa.table({"outcome": ["delete", None, "delete"]}), "not one of delete, sideline, reload"),
        (pa.table({"outcome": ["delete"]}), "gave 1 outcomes for 3 messages"),
        (pa.table({"outcome": [[1]] * 3}), "outcome column is list<item: int64>"),
        (pa.table({"outcome": ["sideline"] * 3, "kind": ["No word"] * 3}), "kind='No word'"),
        (pa.table({"outcome": ["sideline"] * 3, "reason": [[1]] * 3}), "reason column is list"),
    ],
)
def test_what_decides_nothing_sidelines_the_batch_and_is_never_ignored(given, told):
    settled = outcomes(batch_handler(lambda _: given), ignorable=(Exception,))

    assert {verdict[:2] for verdict in settled} == {("sideline", "undecided")}
    assert all(told in reason for _, _, reason in settled)


def test_empty_batches_do_not_reach_the_handler():
    assert outcomes(raising(Declined()), messages(0)) == []


def test_an_unmarked_callable_takes_messages_and_any_callable_can_be_marked():
    class Shop:
        def open(self, batch):
            return [True] * batch.num_rows

        __call__ = open

    assert not takes_batches(raising(Declined()))
    for handler in (Shop(), Shop().open, partial(Shop().open), lambda b: [True] * b.num_rows):
        assert takes_batches(batch_handler(handler))
        assert outcomes(batch_handler(handler)) == [DELETED] * 3


def test_a_marked_function_is_still_itself():
    def check(batch):
        return [True] * batch.num_rows

    assert batch_handler(check) is check


def _sleep_where_asked(message):
    time.sleep(message["seconds"])
    return True


def test_a_call_that_takes_too_long_is_interrupted_and_the_others_are_not():
    begin = time.monotonic()
    slow = messages(3, seconds=[0.0, 30.0, 0.0])

    assert outcomes(_sleep_where_asked, slow, timeout=0.2) == [
        DELETED,
        late(0.2),
        DELETED,
    ]
    assert time.monotonic() - begin < 5


def test_an_alarm_that_is_nearly_due_goes_off_all_the_same(monkeypatch):
    """A timer that is set to less than a microsecond would be turned off."""
    begun = []
    with Deadline(10.0) as deadline:
        monkeypatch.setattr(signal, "setitimer", lambda _, seconds: begun.append(seconds))
        deadline._alarm(1e-9)
    assert begun[0] >= 1e-6


def test_a_call_that_swallows_its_interruption_is_late_all_the_same():
    def stubborn(_):
        try:
            time.sleep(30)
        except BaseException:  # noqa: BLE001 - as handlers should not
            return True

    assert outcomes(stubborn, messages(1), timeout=0.1) == [late(0.1)]


def test_a_handler_that_catches_exceptions_does_not_catch_the_interruption():
    def retrying(_):
        while True:
            try:
                time.sleep(30)
            except Exception:  # noqa: BLE001 - as handlers do
                continue

    assert outcomes(retrying, messages(1), timeout=0.1) == [late(0.1)]


def test_a_batch_that_takes_too_long_times_out_as_one():
    def slow(batch):
        time.sleep(30)
        return [True] * batch.num_rows

    settled = outcomes(batch_handler(slow), timeout=0.1, ignorable=(Exception,))

    assert settled == [late(0.1)] * 3


def test_no_alarm_is_left_behind():
    before = signal.getsignal(signal.SIGALRM)
    outcomes(lambda _: True, timeout=0.05)

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_alarm_that_was_set_for_an_earlier_call_leaves_a_later_one_its_time():
    def steady(message):
        time.sleep(message["seconds"])
        return True

    # Together they take longer than one may.
    assert outcomes(steady, messages(4, seconds=[0.15] * 4), timeout=0.4) == [DELETED] * 4
