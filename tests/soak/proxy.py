"""A proxy in front of an object store, which answers as a bad one does for a while."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Headers that belong to one connection.
_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
_NOT_FOUND = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>NoSuchKey</Code>'
    b"<Message>The specified key does not exist.</Message></Error>"
)
_BUSY = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


class Proxy:
    """Its present behaviour: ``pass``, ``refuse``, ``slow``, ``cut``, ``missing`` or ``busy``."""

    def __init__(self, upstream: str, seed: int) -> None:
        self.upstream = upstream
        self.mode = "pass"
        #: The part of requests that a fault hits.
        self.share = 0.5
        self.chance = random.Random(seed)
        #: How many requests were spoilt.
        self.hits = 0

    def spoils(self) -> str:
        """What to do with the next request."""
        mode = self.mode
        if mode == "pass" or self.chance.random() > self.share:
            return "pass"
        self.hits += 1
        return mode


@contextmanager
def proxy(upstream: str, seed: int) -> Iterator[tuple[Proxy, str]]:
    """Start a proxy for the server *upstream*; gives its controls, and its host and port."""
    controls = Proxy(upstream, seed)
    handler = type("Handler", (_Handler,), {"controls": controls})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield controls, f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    controls: Proxy
    protocol_version = "HTTP/1.1"
    # A response is several small writes.
    disable_nagle_algorithm = True
    _upstream: http.client.HTTPConnection | None = None

    def _handle(self) -> None:
        mode = self.controls.spoils()
        if mode == "refuse":
            self.close_connection = True
            return
        body = self._body()
        if mode == "slow":
            time.sleep(self.controls.chance.uniform(0.2, 2.0))
            if self._is_alone():
                # What a dead process asked for does not happen seconds after its death.
                self.close_connection = True
                return
        if mode == "missing" and self.command in ("GET", "HEAD"):
            self._answer(404, _NOT_FOUND)
        elif mode == "busy":
            self._answer(503, _BUSY)
        else:
            self._forward(body, cut=mode == "cut")

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""

    def _is_alone(self) -> bool:
        """Whether the client has hung up."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _forward(self, body: bytes, *, cut: bool) -> None:
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection(self.controls.upstream)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _OF_A_CONNECTION}
        headers.pop("Expect", None)
        self._upstream.request(self.command, self.path, body, headers)
        response = self._upstream.getresponse()
        content = response.read()
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in _OF_A_CONNECTION | {"content-length"}:
                self.send_header(name, value)
        length = response.headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        # What is cut was done all the same: its client cannot know.
        self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = self.close_connection or cut
