"""Every built-in policy compared with Herzner's loop, on small queues of few keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from queue_core.policies.parsing import parse
from tests.unit.policies.policy_reference import Ask
from tests.unit.policies.policy_runs import (
    BUILT_IN,
    NEW,
    QUEUED,
    SCHEMA,
    check,
)


@pytest.mark.parametrize(("text", "ask", "order"), BUILT_IN, ids=[text for text, *_ in BUILT_IN])
@given(queued=QUEUED, new=NEW)
def test_it_does_what_the_loop_does(
    text: str, ask: Ask, order: str, queued: list[Any], new: list[Any]
) -> None:
    check(parse(text, SCHEMA, "key"), ask, order, queued, new)
