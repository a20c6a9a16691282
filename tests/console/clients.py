"""Clients of the console."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from queue_core.values.address import Address

#: The address that the tests use, so that its name is an allowed one.
ORIGIN = "http://localhost:8413"


def log_in(client: TestClient) -> None:
    key = client.app.state.console.auth.key
    assert client.get("/login", params={"key": key}, follow_redirects=False).status_code == 303


def token(client: TestClient) -> str:
    """The token that a form of this login brings."""
    return client.get("/api/session").json()["csrf"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def on_both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty catalog, once per database; a module takes it as its ``catalog_url``."""
    if request.param == "sqlite":
        yield Address.of(tmp_path / "store").catalog
        return
    with request.getfixturevalue("postgres").database() as url:
        yield url
