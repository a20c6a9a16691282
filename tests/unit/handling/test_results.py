"""A handler that returns nothing: when it is refused, and what its user is told."""

import pickle
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest

from queue_core import Later, Retry, batch_handler
from queue_core.errors import BadOption
from queue_core.handling.calls import MessageCalls
from queue_core.handling.results import Results, check_on_none, name_of, refusal
from tests.unit.handling.handler_runs import Declined, raising, runner_of, waits


def test_unknown_outcomes_are_refused():
    assert check_on_none(None) is None
    assert check_on_none("delete") == "delete"
    with pytest.raises(BadOption, match=r"on_none='delet': .*did you mean 'delete'"):
        check_on_none("delet")
    with pytest.raises(BadOption, match="on_none='reload'"):
        check_on_none("reload")


class Charge:
    def __call__(self, message):
        return True

    def handle(self, message):
        return True


def test_the_error_names_queue_handler_and_remedy():
    assert name_of(partial(Charge().handle)) == "Charge.handle"
    assert name_of(Charge()) == "Charge"
    results = Results()
    assert results.refusal(Charge().handle) is None
    results.none()
    told = str(refusal(results.refusal(Charge().handle), ["orders", "paid"]))
    assert told.startswith("queue 'orders', 'paid': the handler Charge.handle returned None")
    assert "on_none='delete'" in told


def test_a_handler_of_a_sideline_cannot_put_messages_off():
    calls = MessageCalls([], runner_of(Charge()))
    assert calls.put_off()
    assert not calls.results.refused

    runner = runner_of(Charge(), on_none="delete", may_put_off=False)
    calls = MessageCalls([], runner)
    assert not calls.put_off()
    assert calls.results.refused
    assert "handler Charge puts messages of the sideline off" in calls.results.refusal(Charge())


@pytest.mark.parametrize("given", [90, "90s", "1.5m", timedelta(seconds=90)])
def test_the_time_may_be_a_number_a_text_or_a_timedelta(given):
    later = pickle.loads(pickle.dumps(Later(given)))

    assert (later.seconds, str(later)) == (90.0, "in 90 s")
    assert str(Later(1.5, "quota")) == "in 1.5 s: quota"


@pytest.mark.parametrize("seconds", [-1, "soon", None, True, float("inf"), float("nan"), 1e300])
def test_a_time_that_makes_no_sense_is_refused(seconds):
    with pytest.raises(BadOption, match="use seconds or a duration such as"):
        Later(seconds)


def putting_off(row):
    if row["_message_id"] == 1:
        raise Later(30)
    return True


def test_a_handler_puts_its_message_off():
    assert waits(putting_off, ignorable=(Exception,)) == [
        ("delete", None, False),
        ("reload", 30.0, False),
        ("delete", None, False),
    ]
    assert waits(batch_handler(raising(Later(60)))) == [("reload", 60.0, None)] * 3


def test_a_batch_handler_puts_some_messages_off_by_its_table():
    table = pa.table(
        {
            "outcome": ["delete", "reload", "sideline"],
            "delay": [None, 5, None],
            "dead": [None, None, True],
        }
    )

    assert waits(batch_handler(lambda _: table)) == [
        ("delete", None, None),
        ("reload", 5.0, None),
        ("sideline", None, True),
    ]


@pytest.mark.parametrize("columns", [{"delay": ["x"] * 3}, {"dead": [True] * 3}])
def test_a_table_that_makes_no_sense_sidelines_its_batch(columns):
    table = pa.table({"outcome": ["reload"] * 3} | columns)

    assert waits(batch_handler(lambda _: table)) == [("sideline", None, None)] * 3


def by_number(row):
    raise [KeyError(), ConnectionResetError(), Declined()][row["_message_id"]]


@pytest.mark.parametrize(
    ("retry", "dead"),
    [
        (None, [None] * 3),
        (Retry(on=[ConnectionError, "timeout"]), [True, False, True]),
        (Retry(not_on=LookupError), [True, False, False]),
        (Retry(not_on="exception"), [True, True, True]),
    ],
)
def test_exceptions_are_judged_by_their_classes_where_the_handler_runs(retry, dead):
    assert [found for _, _, found in waits(by_number, retry=retry)] == dead
    # The exception of a batch counts for all its messages.
    of_batch = waits(batch_handler(raising(Declined())), retry=retry)
    assert {found for _, _, found in of_batch} == {dead[2] or None}


def test_the_message_of_a_refused_handler_is_not_handled_again():
    assert waits(lambda _: None)[0] == ("sideline", None, True)
    assert waits(batch_handler(lambda _: None)) == [("sideline", None, True)] * 3
