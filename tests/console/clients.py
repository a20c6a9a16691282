"""Clients of the console."""

from starlette.testclient import TestClient

#: The address that the tests use, so that its name is an allowed one.
ORIGIN = "http://localhost:8413"


def log_in(client: TestClient) -> None:
    key = client.app.state.console.auth.key
    assert client.get("/login", params={"key": key}, follow_redirects=False).status_code == 303


def token(client: TestClient) -> str:
    """The token that a form of this login brings."""
    return client.get("/api/session").json()["csrf"]
