"""Ask an application of ASGI for pages, in this process and without a network."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette

#: A name of the console, which its guard lets in.
HOST = "localhost:8413"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and the seconds that it took."""

    status: int
    body: bytes
    seconds: float


class Client:
    """A login of a console; several of its requests may be under way at once."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._headers: list[tuple[bytes, bytes]] = [(b"host", HOST.encode())]

    async def log_in(self) -> None:
        """Log in with the key of the console."""
        key = self._app.state.console.auth.key
        sent = await self._ask("GET", f"/login?key={quote(key)}", b"")
        cookies = [value for name, value in sent[0]["headers"] if name == b"set-cookie"]
        self._headers.append((b"cookie", cookies[0].partition(b";")[0]))
        csrf = json.loads((await self.get("/api/session")).body)["csrf"]
        self._headers.append((b"x-csrf-token", csrf.encode()))

    async def get(self, path: str) -> Answer:
        """Return the answer to a request for a page."""
        return await self._timed("GET", path, b"")

    async def post(self, path: str, fields: dict[str, Any]) -> Answer:
        """Return the answer to a request with fields as JSON."""
        return await self._timed("POST", path, json.dumps(fields).encode())

    async def _timed(self, method: str, path: str, body: bytes) -> Answer:
        began = time.perf_counter()
        sent = await self._ask(method, path, body)
        seconds = time.perf_counter() - began
        return Answer(sent[0]["status"], b"".join(each["body"] for each in sent[1:]), seconds)

    async def _ask(self, method: str, path: str, body: bytes) -> list[Any]:
        sent: list[Any] = []
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return pending.pop() if pending else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        route, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": route,
            "raw_path": route.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [*self._headers, (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8413),
            "state": {},
        }
        await self._app(scope, receive, send)
        return sent
