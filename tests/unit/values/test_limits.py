"""Limits: their values, and their texts."""

import pickle

import pytest

from queue_core import Limit, QueueSettings, limit
from queue_core.errors import BadOption
from queue_core.values.limits import as_limits, text_of

LIMITS = [
    limit(in_flight=100),
    limit(per_second=0.5),
    limit(in_flight=2, per_second=10, window=60.0),
    limit("it's", in_flight=2),
    limit(name='the "crm"', in_flight=2, per_second=1),
]


@pytest.mark.parametrize("one", LIMITS, ids=str)
def test_the_text_of_a_limit_is_read_back(one):
    assert as_limits(str(one)) == (one,)
    assert as_limits([one]) == as_limits(one) == (one,)
    assert pickle.loads(pickle.dumps(one)) == one
    settings = QueueSettings(limits=(one,))
    assert QueueSettings.from_json(settings.to_json()) == settings


def test_several_limits_and_none_have_a_text():
    assert as_limits(text_of(LIMITS[2:])) == tuple(LIMITS[2:])
    assert as_limits(None) == as_limits("") == as_limits([]) == ()
    assert text_of(()) == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("limit()", "give in_flight, per_second, or both"),
        ("limit(in_flight=0)", "in_flight=0"),
        ("limit(in_flight=True)", "in_flight=True"),
        ("limit(per_second=0)", "per_second=0"),
        ("limit(per_second=1e7)", "at most a million"),
        ("limit(per_second=1e-12)", "per_second=1e-12.*at least one in a year"),
        ("limit(per_second=1e-300)", "pause the queue"),
        ("limit(per_second=1, window=0)", "window=0"),
        ("limit(per_hour=1)", "write it as limit"),
        ("limit(**{'in_flight': 1})", "write it as limit"),
        ("limit(in_flight=1), limit(per_second=1)", "one limit of the whole queue"),
        ("limit('a', in_flight=1), limit('a', per_second=1)", "and one of each column"),
        ("limit('', in_flight=1)", "column=''"),
        ("limit(name='', in_flight=1)", "name=''.*1 to 100 printable"),
        ("limit(name='a\\nb', in_flight=1)", "1 to 100 printable"),
        ("limit('a', name='crm', in_flight=1)", "name='crm'.*column 'a' cannot be shared"),
        ("limit(name='a', in_flight=1), limit(name='a', in_flight=2)", "one of each name"),
        ("limit(in_flight=1", "write it as limit"),
        ("__import__('os').abort()", "write it as limit"),
        ("5", "write it as limit"),
        (5, "write it as limit"),
        ([5], "write it as limit"),
    ],
)
def test_others_are_refused_with_the_form(given, told):
    with pytest.raises(BadOption, match=told.replace("(", r"\(")):
        QueueSettings().changed({"limits": given})


def test_a_limit_of_no_number_is_refused():
    with pytest.raises(BadOption, match="per_second='10'"):
        Limit(per_second="10")  # type: ignore[arg-type]
