"""Policies and de-duplications that do not fit a queue, and the import paths of policies."""

from __future__ import annotations

import pyarrow as pa
import pytest

from queue_core.errors import BadOption
from queue_core.policies.aggregates import Take
from queue_core.policies.binding import bind, check, dedup_schema, imported, storable
from queue_core.policies.builtin import Annihilate, Latest, Merge
from queue_core.values.settings import QueueSettings
from tests import own_checks

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("kind", pa.string()),
        ("n", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    ]
)


@pytest.mark.parametrize(
    "policy",
    [
        Latest("eldest"),
        Merge(()),
        Merge((Take("avg", "n"),)),
        Merge((Take("sum", "m"),)),
        Annihilate("kind = ", "kind = 'off'"),
        17,
    ],
)
def test_an_invalid_value_is_refused(policy):
    with pytest.raises(BadOption):
        bind(policy, SCHEMA, "key", QueueSettings())


def test_a_queue_without_a_key_or_messages_has_no_policy():
    with pytest.raises(BadOption, match="give the queue a key"):
        bind("latest", SCHEMA, None, QueueSettings())
    with pytest.raises(BadOption, match="max_size=0"):
        bind("latest", SCHEMA, "key", QueueSettings(max_size=0))
    with pytest.raises(BadOption, match=r"dedup: .* max_size=0"):
        check(QueueSettings(max_size=0, dedup=("n",)), SCHEMA, "key", 1)


@pytest.mark.parametrize("names", [("tags",), ("nobody",), ("n", "n")])
def test_columns_that_cannot_be_a_de_duplication_key(names):
    with pytest.raises(BadOption, match="dedup"):
        dedup_schema(names, SCHEMA)


def test_a_path_is_imported():
    assert imported("tests.own_checks:add_up") is own_checks.add_up
    assert imported("tests.own_checks:Checks.refuse") is own_checks.Checks.refuse
    assert imported("tests.own_checks:LATEST") == Latest()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("no_such_module:check", "cannot be imported here: ModuleNotFoundError"),
        ("tests.own_checks:chek", "cannot be imported here: AttributeError"),
        ("tests.own_checks:NUMBER", "is 5; it must be a function"),
        ("tests.own_checks:Checks", "it must be a function"),
    ],
)
def test_a_path_without_a_policy_is_refused(path, told):
    with pytest.raises(BadOption, match=told):
        imported(path)


def test_a_function_is_stored_by_its_path():
    assert storable({"policy": own_checks.add_up}) == {"policy": "tests.own_checks:add_up"}
    assert storable({"policy": own_checks.Checks.refuse})["policy"].endswith(":Checks.refuse")
    for settings in ({"policy": "latest"}, {"policy": None}, {"concurrency": 2}):
        assert storable(settings) == settings


def test_a_policy_that_others_cannot_import_is_refused():
    def local(new, queued):
        raise AssertionError

    of_main = type(local)(local.__code__, globals(), "of_main")
    of_main.__module__ = "__main__"
    for policy in (local, lambda new, queued: None, of_main):
        with pytest.raises(BadOption, match="define it at the top of an installed module"):
            storable({"policy": policy})
    for policy in (Latest(), own_checks.BY_WORDS, 5):
        with pytest.raises(BadOption, match="cannot be stored: give its text"):
            storable({"policy": policy})
