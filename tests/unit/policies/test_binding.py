"""Policies and de-duplications that do not fit a queue."""

from __future__ import annotations

import pyarrow as pa
import pytest

from queue_core.errors import BadOption
from queue_core.policies.aggregates import Take
from queue_core.policies.binding import bind, check, dedup_schema
from queue_core.policies.builtin import Annihilate, Latest, Merge
from queue_core.values.settings import QueueSettings

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
