"""A console over the store of the test, and clients that are logged in."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from sqlalchemy import event
from starlette.testclient import TestClient

from ignis_console.app import create_app
from ignis_console.config import ConsoleOptions
from queue_core import Store
from queue_core.values.address import Address
from tests.console.clients import ORIGIN, log_in
from tests.factories import make_filled


@pytest.fixture
def catalog_url(tmp_path: Path) -> str:
    """A catalog in SQLite: few tests of the console depend on the database."""
    return Address.of(tmp_path / "store").catalog


@pytest.fixture
def one_loop() -> Iterator[BlockingPortal]:
    """What all clients of a test run in, as in a server; otherwise each request begins its own."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def serve(store: Store, one_loop: BlockingPortal) -> Iterator[Callable[..., TestClient]]:
    """Make a client of a console with options; it is not logged in, and has an *address*."""
    apps = []

    def make(*, address: str = "testclient", **options: object) -> TestClient:
        app = create_app(store, ConsoleOptions(**options))
        apps.append(app)
        client = TestClient(app, base_url=ORIGIN, client=(address, 50_000))
        client.portal = one_loop
        return client

    yield make
    for app in apps:
        app.state.console.close()


@pytest.fixture
def operator(serve) -> TestClient:
    """A client that may operate."""
    client = serve()
    log_in(client)
    return client


@pytest.fixture
def looker(serve) -> TestClient:
    """A client that may look."""
    client = serve(look_only=True)
    log_in(client)
    return client


@pytest.fixture
def queue(store: Store):
    """A queue with messages in every state: 6 wait, 2 are in flight, 2 are sidelined."""
    made = make_filled(store, 12, shards=2)
    firing = made.fire(6, consumer=store.consumer("till", beats=True))
    made.delete(firing.ids[:2])
    made.sideline(firing.ids[2:4], "no such customer\n<b>line 2</b>", kind="exception")
    return made


@pytest.fixture
def begun(store):
    """The transactions of the store, by the time of their begin."""
    times = []
    event.listen(store.catalog.engine, "begin", lambda _: times.append(time.monotonic()))
    return times
