"""Retry: which failures are tried again, when, and the text of a policy."""

import pickle

import pytest

from queue_core import Retry, constant, exponential
from queue_core.errors import BadOption
from queue_core.values.retry import DEFAULT_RETRY, as_retry, check_kinds_only, of_kinds

POLICIES = [
    Retry(),
    Retry(attempts=None, backoff=constant(600)),
    Retry(3, exponential(0.5, 3, 60, 0.1), on=["timeout", "exception"], not_on="rejected"),
    DEFAULT_RETRY,
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_text_of_a_policy_is_read_back(policy):
    assert Retry.parse(str(policy)) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_text_is_read_as_python_writes_it():
    text = " retry(2, backoff=constant(1), on=('timeout',)) "

    assert Retry.parse(text) == Retry(2, constant(1), on="timeout")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write it as Retry"),
        ("5", "write it as Retry"),
        ("constant(5)", "write it as Retry"),
        ("Retry(attempts=0)", "attempts=0"),
        ("Retry(backof=constant(1))", "backof"),
        ("Retry(backoff=linear(1))", "linear is unknown"),
        ("Retry(**{'attempts': 1})", "write it as Retry"),
        ("Retry(on=[ValueError])", "ValueError is not in quotes.*exception classes"),
        ("Retry(1 + 1)", r"1 \+ 1 is not a value"),
        ("Retry(backoff=5)", "backoff=5"),
        ("__import__('os').abort()", "unknown"),
        ("Retry(", "write it as Retry"),
    ],
)
def test_another_text_is_refused_with_the_form(text, told):
    with pytest.raises(BadOption, match=told) as refused:
        Retry.parse(text)
    assert str(refused.value).startswith(f"retry={text!r}")


def test_a_message_waits_until_its_attempts_are_used_up():
    policy = Retry(attempts=3, backoff=exponential(1))

    assert [policy.wait(n) for n in (1, 2, 3, 4)] == [1, 2, None, None]
    assert Retry(attempts=1).wait(1) is None
    assert Retry(attempts=None, backoff=constant(7)).wait(10**9) == 7


def test_jitter_makes_a_wait_longer_or_shorter_by_its_share():
    policy = Retry(backoff=constant(100, jitter=0.2))

    assert [round(policy.wait(1, c)) for c in (0.0, 0.5, 1.0)] == [80, 100, 120]
    assert 80 <= policy.wait(1) <= 120


def test_the_default_ends_after_about_three_and_a_half_hours():
    waits = [DEFAULT_RETRY.wait(n, 0.5) for n in range(1, 11)]

    assert waits[-1] is None
    assert 3.4 < sum(waits[:-1]) / 3600 < 3.6


def test_kinds_choose_what_is_retried():
    some = Retry(on=["timeout", "swept"])
    most = Retry(not_on="rejected")

    assert [some.retries(kind) for kind in ("timeout", "swept", "rejected")] == [True, True, False]
    assert [most.retries(kind) for kind in ("timeout", "rejected")] == [True, False]
    # The handler has done its work, and would do it again.
    assert not Retry().retries("undecided")
    assert not most.retries("undecided")
    assert Retry(on=("undecided", "timeout")).retries("undecided")


def test_exceptions_are_chosen_by_their_classes():
    network = Retry(on=[ConnectionError, "timeout"])
    no_values = Retry(not_on=ValueError)
    none = Retry(not_on="exception")

    assert network.retries_error(ConnectionResetError())
    assert not network.retries_error(ValueError())
    assert no_values.retries_error(KeyError())
    assert not no_values.retries_error(UnicodeError())
    assert not none.retries_error(KeyError())


def test_the_catalog_gets_the_policy_without_classes():
    policy = Retry(4, constant(1), on=[ConnectionError, "timeout"], not_on=[KeyError, "rejected"])

    assert policy.classes == (ConnectionError, KeyError)
    assert policy.by_kinds() == Retry(
        4, constant(1), on=["timeout", "exception"], not_on="rejected"
    )
    assert Retry(not_on=KeyError).by_kinds() == Retry()


def test_a_policy_with_classes_is_for_handlers_only():
    with pytest.raises(BadOption, match=r"exception classes \(KeyError\); give it to the handler"):
        check_kinds_only(Retry(on=KeyError))
    assert of_kinds("Retry(2)") == Retry(2)
    assert of_kinds(None) is None


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"attempts": 0}, "attempts=0"),
        ({"attempts": True}, "attempts=True"),
        ({"attempts": 2.0}, "attempts=2.0"),
        ({"backoff": 5}, "backoff=5"),
        ({"on": []}, "on="),
        ({"on": "Time Out"}, "'Time Out' is neither"),
        ({"not_on": [KeyboardInterrupt]}, "KeyboardInterrupt"),
        ({"not_on": [3]}, "not_on: 3 is neither"),
        ({"not_on": 3}, "not_on=3: name failures by their kinds"),
    ],
)
def test_what_is_out_of_range_is_refused(values, told):
    with pytest.raises(BadOption, match=told):
        Retry(**values)


def test_a_policy_is_given_as_a_value_or_a_text():
    assert as_retry("Retry(3)") == as_retry(Retry(3)) == Retry(3)
    with pytest.raises(BadOption, match="retry=5: give a Retry, its text, or None"):
        as_retry(5)
