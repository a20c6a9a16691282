"""The text of a setting is its value, here and in docs/settings.md."""

from dataclasses import fields

import pytest

from queue_core.errors import BadOption
from queue_core.values.setting_texts import parse_setting, parse_settings
from queue_core.values.settings import QueueSettings


def test_the_text_of_each_default_is_the_default():
    for each in fields(QueueSettings):
        text = "none" if each.default in (None, ()) else str(each.default)
        settings = QueueSettings.of({each.name: parse_setting(each.name, text)})
        assert getattr(settings, each.name) == each.default, each.name


@pytest.mark.parametrize(("name", "text"), [("sweep_after", "soon"), ("attributes", ",")])
def test_a_text_that_is_no_value_is_told_what_is_allowed(name, text):
    with pytest.raises(
        ValueError, match=r"seconds or a duration|a list of column names, separated"
    ):
        parse_setting(name, text)


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("message_expiry=2d", 2 * 86400),
        ("sweep_after=15m", 900),
        ("dedup_window=90s", 90),
        ("shovel_interval=2h", 7200),
        ("dedup_window=0.5", 0.5),
        ("sweep_after=60", 60),
        ("message_expiry=none", None),
        ("message_expiry=null", None),
        ("attributes=number,customer", ("number", "customer")),
        ("attributes=number, customer", ("number", "customer")),
        ("categories=customer", ("customer",)),
        ('attributes=["number", "customer"]', ("number", "customer")),
        ("attributes=none", ()),
        ("attributes=", ()),
        ("compression=none", None),
        ("compression=zstd", "zstd"),
        ("priority=amount", "amount"),
        ('priority="none"', "none"),
        ("policy=merge(sum(a), last(b))", "merge(sum(a), last(b))"),
        ("shovel_rate=0.5", 0.5),
        ("max_size=5", 5),
        ("concurrency=100", 100),
    ],
)
def test_a_value_is_what_its_text_says(pair, value):
    name = pair.partition("=")[0]

    settings = QueueSettings.of(parse_settings([pair]))

    assert getattr(settings, name) == value


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        ("message_expiry=2 fortnights", "use seconds or a duration such as 90s, 15m"),
        ("message_expiry=-1", "use seconds or a duration such as 90s"),
        ("message_expiry=true", "use seconds or a duration such as 90s"),
        ("message_expiry=0s", "message_expiry=0: use seconds or a duration"),
        ("sweep_after=none", "sweep_after=None: use seconds or a duration"),
        ("attributes=,", "a list of column names, separated by commas: amount,customer"),
        ("attributes=[number]", "a list of column names, separated by commas: amount,customer"),
        ("attributes=[1]", "a list of column names"),
        ("concurrency=many", "concurrency=many: use a whole number from 0 to 100"),
        ("concurrency=1h", "concurrency=1h: use a whole number from 0 to 100"),
        ("concurrency=101", "a whole number from 0 to 100"),
        ("concurrency=-1", "a whole number from 0 to 100"),
        ("concurrency=2.5", "a whole number from 0 to 100"),
        ("overflow=drop", "overflow='drop': use block, fail or ring"),
        ('sweep_aftr="3', "did you mean 'sweep_after'"),
        ("sweep_aftr=3", "did you mean 'sweep_after'"),
        ("sweep_after", "setting 'sweep_after': write NAME=VALUE"),
    ],
)
def test_a_malformed_setting_is_refused_with_what_is_accepted(pair, why):
    with pytest.raises(BadOption) as refusal:
        QueueSettings.of(parse_settings([pair]))

    assert why in str(refusal.value)
