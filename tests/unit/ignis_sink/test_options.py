"""The options of the sink: parsed, defaulted, and refused all at once."""

from dataclasses import replace

import pytest

from ignis_sink.options import OPTIONS, SinkOptions
from queue_core.errors import BadOption
from queue_core.values.address import Address


def options(**given):
    return SinkOptions.of({"path": "/shop", "queue": "orders"} | given)


def test_without_options_a_sink_loads():
    assert options() == SinkOptions(
        address=Address.of("/shop"),
        queues=("orders",),
        mode="load",
        key=None,
        shards=8,
        merge_schema=False,
        consumer=None,
    )
    assert options().queue == "orders"


def test_what_spark_hands_over_besides_is_not_ours_to_check():
    assert options(queryName="q") == options()
    assert options(checkpointLocation="/c") == replace(options(), checkpoint="/c")


def test_a_settlement_may_be_of_several_queues():
    given = {"path": "/shop", "queues": "red,blue", "mode": "SETTLE", "consumer": "judge"}
    chosen = SinkOptions.of(given)
    assert (chosen.queues, chosen.mode, chosen.consumer) == (("red", "blue"), "settle", "judge")


def test_all_wrong_options_are_told_at_once_each_with_what_was_meant():
    with pytest.raises(BadOption) as refused:
        options(mod="load", shards="9999", mergeSchema="maybe", queue="9lives", retry="foo")
    told = str(refused.value)
    assert told.startswith("ignis sink: ")
    for part in (
        "unknown option 'mod'; did you mean 'mode'?",
        "shards='9999': use 1 to 512",
        "mergeSchema='maybe': use true or false",
        "queue='9lives': queue name '9lives': use a letter",
        "; retry='foo': foo is not in quotes",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("messageExpiry", "ttl"),
        ("message_expiry", "ttl"),
        ("group", "groupBy"),
        ("overflow", "onFull"),
    ],
)
def test_the_name_of_a_setting_leads_to_its_option(setting, option):
    with pytest.raises(BadOption, match=f"option '{setting}'; did you mean '{option}'"):
        options(**{setting: "7"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "/shop"}, "name a queue"),
        ({"path": "/shop", "queue": "a", "queues": "b"}, "set queue or queues, not both"),
        ({"path": "/shop", "queues": "a,b"}, "mode=load writes one queue"),
        ({"path": "/shop", "queueColumn": "to", "mode": "settle"}, "queueColumn is for mode=load"),
        ({"path": "/shop", "queueColumn": "to", "queue": "a"}, "set queue or queueColumn"),
        ({"path": "/shop", "queueColumn": "to", "key": "number"}, "key concerns one queue"),
        ({"path": "/shop", "queueColumn": "to", "shards": "2"}, "shards concerns one queue"),
        ({"path": "/shop", "queueColumn": "to", "output": "a"}, "output concerns one queue"),
        ({"path": "/shop", "queueColumn": "to", "maxSize": "0"}, "maxSize concerns one queue"),
        ({"queue": "a"}, "the store has no address"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(BadOption, match=message):
        SinkOptions.of(given)


def test_every_option_says_what_it_does():
    assert all(option.about.endswith(".") for option in OPTIONS)
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
