"""Where the stores of state machines are: a fresh one for each history."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_core.values.address import Address

#: Where files need not wait for a disk: what is tested here is not that they survive.
MEMORY = Path("/dev/shm")


@pytest.fixture
def new_address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Address]]:
    """Makes a fresh address at each call."""
    with ExitStack() as stack:
        root = tmp_path
        if os.access(MEMORY, os.W_OK):
            memory = tempfile.TemporaryDirectory(prefix="ignis-property-", dir=MEMORY)
            root = Path(stack.enter_context(memory))

        def make() -> Address:
            folder = root / os.urandom(8).hex()
            if request.param == "sqlite":
                return Address.of(folder)
            databases = request.getfixturevalue("postgres").database()
            return Address(stack.enter_context(databases), str(folder))

        yield make
