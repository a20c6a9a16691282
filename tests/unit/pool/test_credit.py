"""Credit: granted up to a limit, and reported when it is used up and when it is back."""

import pytest

from queue_core.pool.credit import Credit


def test_credit_is_granted_until_none_is_left_and_both_is_reported():
    reports = []
    credit = Credit(5, reports.append)

    assert [credit.reserve(3), credit.reserve(3)] == [3, 2]
    assert reports == []
    assert credit.reserve(3) == 0
    assert reports == [False]
    assert credit.missing_for() > 0
    credit.give_back(1)
    assert reports == [False, True]
    assert (credit.missing_for(), credit.reserve(3), credit.used) == (0.0, 1, 5)


def test_unused_credit_is_given_back_and_reported():
    reports = []
    credit = Credit(4, reports.append)
    credit.reserve(4)
    credit.give_back(0)
    assert reports == [False]
    credit.give_back(4)
    assert reports == [False, True]


def test_without_a_limit_there_is_always_credit():
    credit = Credit(None, pytest.fail)
    assert credit.reserve(10**9) == 10**9
