"""Clients that leave before their request has ended."""

import asyncio
import logging

import pytest


@pytest.mark.parametrize("path", ["/api/queues/orders/actions/scale", "/login", "/logout"])
@pytest.mark.parametrize("sent", [b"", b"{"])
def test_a_client_that_leaves_within_a_body_is_no_error(operator, queue, caplog, path, sent):
    caplog.set_level(logging.INFO)
    parts = [{"type": "http.request", "body": sent, "more_body": True}] if sent else []
    parts.append({"type": "http.disconnect"})
    headers = {"host": "localhost:8413", "content-type": "application/json", **operator.headers}
    headers["cookie"] = "; ".join(f"{name}={value}" for name, value in operator.cookies.items())
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("testclient", 50_000),
        "server": ("localhost", 8413),
    }
    rest, answers = iter(parts), []

    async def receive():
        return next(rest)

    async def send(message):
        answers.append(message)

    asyncio.run(operator.app(scope, receive, send))

    assert answers[0]["status"] in (400, 403)
    assert not caplog.records
    assert queue.refresh().info.settings.concurrency
