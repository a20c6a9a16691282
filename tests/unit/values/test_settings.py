"""Settings are checked once, and survive the way through the catalog."""

import json
import math
from dataclasses import fields
from datetime import timedelta

import pytest

from queue_core.errors import BadOption
from queue_core.values.retry import Retry
from queue_core.values.settings import MAX_SHARDS, QueueSettings, check_shards


def test_a_queue_that_says_nothing_has_the_settings_of_ignis_mq():
    settings = QueueSettings()

    assert settings.concurrency == 8
    assert settings.sweep_after == 20 * 60
    assert settings.compression is None
    assert settings.attributes == ()


@pytest.mark.parametrize(
    "values",
    [
        {"concurrency": 0},
        {"concurrency": 100},
        {"sweep_after": 0.5},
        {"sweep_after": 60},
        {"compression": "lz4"},
        {"compression": "zstd"},
        {"compression": None},
        {"attributes": ["amount", "customer"]},
        {"attributes": ()},
    ],
    ids=repr,
)
def test_settings_survive_the_way_to_json_and_back(values):
    settings = QueueSettings.of(values)

    assert QueueSettings.from_json(settings.to_json()) == settings
    for name, value in values.items():
        kept = getattr(settings, name)
        assert (list(kept) == list(value)) if name == "attributes" else (kept == value)


@pytest.mark.parametrize("given", ["90m", "1.5h", "5400", timedelta(minutes=90), 5400], ids=repr)
def test_times_can_be_given_as_durations(given):
    assert QueueSettings(message_expiry=given).message_expiry == 5400
    assert QueueSettings.of({"message_expiry": given}).message_expiry == 5400


@pytest.mark.parametrize("given", [timedelta.max, "999999999 days", 1e300, 10**30], ids=str)
def test_more_than_a_hundred_years_are_a_hundred(given):
    settings = QueueSettings(dedup_window=given)

    assert settings.dedup_window == 3_155_760_000
    assert settings.unlike({"dedup_window": given}) == []


@pytest.mark.parametrize("given", ["0s", timedelta(0), timedelta(seconds=-1)], ids=repr)
def test_a_duration_that_makes_no_sense_is_refused(given):
    with pytest.raises(BadOption, match=r"^sweep_after=.*: use seconds or a duration such as 90s"):
        QueueSettings(sweep_after=given)


@pytest.mark.parametrize(
    "values",
    [
        {"concurrency": -1},
        {"concurrency": 1.5},
        {"concurrency": "8"},
        {"concurrency": True},
        {"sweep_after": 0},
        {"sweep_after": -1},
        {"sweep_after": math.nan},
        {"sweep_after": math.inf},
        {"sweep_after": "20 fortnights"},
        {"sweep_after": None},
        {"sweep_after": True},
        {"compression": "gzip"},
        {"log": ["7 days"]},
        {"late": 7},
        {"compression": ""},
        {"attributes": ""},
        {"attributes": [1]},
        {"attributes": None},
        {"attributes": 5},
    ],
    ids=repr,
)
def test_a_value_that_makes_no_sense_is_refused_with_its_setting(values):
    (name, value), *_ = values.items()

    with pytest.raises(BadOption) as refusal:
        QueueSettings.of(values)

    assert f"{name}={value!r}" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("concurency", "'concurrency'"), ("sweepAfter", "'sweep_after'"), ("zzz", None)],
)
def test_an_unknown_setting_is_refused_with_the_nearest_one(name, hint):
    with pytest.raises(BadOption) as refusal:
        QueueSettings.of({name: 1})

    assert f"unknown setting {name!r}" in str(refusal.value)
    assert ("did you mean" in str(refusal.value)) == (hint is not None)
    assert hint is None or hint in str(refusal.value)


@pytest.mark.parametrize("name", ["key", "shards"])
def test_what_is_fixed_at_the_creation_is_no_setting(name):
    with pytest.raises(BadOption, match=f"{name} is fixed when the queue is created"):
        QueueSettings.of({name: 1})


def test_changing_some_settings_keeps_the_others():
    changed = QueueSettings(concurrency=3).changed({"sweep_after": 5.0})

    assert changed == QueueSettings(concurrency=3, sweep_after=5.0)
    # More consumers than there may be are as many as there may be.
    for many in (101, 10**9):
        assert changed.changed({"concurrency": many}).concurrency == 100


def test_a_policy_is_stored_as_its_text():
    settings = QueueSettings(retry=Retry(attempts=3))

    assert json.loads(settings.to_json())["retry"] == str(Retry(attempts=3))
    assert QueueSettings.from_json(settings.to_json()) == settings
    # A queue of a version without policies has none; settings of a later version are left out.
    assert QueueSettings.from_json("{}") == QueueSettings(retry=None)
    stored = json.dumps({"concurrency": 3, "from_the_future": [1, 2]})
    assert QueueSettings.from_json(stored) == QueueSettings(concurrency=3, retry=None)


def test_a_queue_has_one_shard_or_more():
    for shards in (1, 8, MAX_SHARDS):
        assert check_shards(shards) == shards
    for shards in (0, -1, MAX_SHARDS + 1, 1.0, "8", None, True):
        with pytest.raises(BadOption, match="shards="):
            check_shards(shards)


def test_every_setting_is_described_in_whole_sentences():
    for setting in fields(QueueSettings):
        about = setting.metadata["about"]
        assert about.endswith("."), setting.name
        assert setting.metadata["allowed"].text, setting.name
        assert setting.default == getattr(QueueSettings(), setting.name)
        assert f"{setting.name}: {about}" in QueueSettings.__doc__
        if setting.default is None and setting.name != "compression":
            assert "none: " in about, setting.name
