"""Where the stores of state machines are: a fresh one for each history."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_core.selection import acquire
from queue_core.values.address import Address


@pytest.fixture
def new_address(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Address]]:
    """Makes a fresh address at each call."""
    # There are few messages, and the heads of shards are to be found.
    monkeypatch.setattr(acquire, "HEAD_EVERY", 2)
    with ExitStack() as stack:

        def make() -> Address:
            folder = tmp_path / os.urandom(8).hex()
            if request.param == "sqlite":
                return Address.of(folder)
            databases = request.getfixturevalue("postgres").database(ready=True)
            return Address(stack.enter_context(databases), str(folder))

        yield make
