"""The guard before every route: the name of the host, the origin of requests, and safe headers.

It stops requests that another site makes in a person's browser: a name that an attacker
bound to this address (DNS rebinding), forms and scripts of other origins, and frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ignis_console.config import ConsoleOptions, is_root
from ignis_console.rendering import ROOT

#: Sent with every response.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: the browser would send the origin "null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
#: Methods that change nothing.
SAFE = ("GET", "HEAD")
#: The most bytes of a request's body.
MOST_BODY = 1 << 20


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, options: ConsoleOptions) -> None:
        self._app = app
        self._names = options.allowed_names
        self._tls = options.has_tls
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        root = self._root(scope)
        path = scope["path"]
        # Some proxies pass the root on, and some do not.
        if root and (path == root or path.startswith(f"{root}/")):
            scope = {**scope, "path": path.removeprefix(root) or "/"}

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if headers.get("Location", "").startswith("/"):
                    headers["Location"] = root + headers["Location"]
                if self._tls:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        refused = self._refusal(scope["method"], Headers(scope=scope))
        if refused is None:
            token = ROOT.set(root)
            try:
                await self._app(scope, receive, send_safely)
            finally:
                ROOT.reset(token)
            return
        status, text = refused
        answer: Response = PlainTextResponse(text + "\n", status)
        if scope["path"].startswith("/api/"):
            answer = JSONResponse({"error": "Refused", "message": text}, status)
        await answer(scope, receive, send_safely)

    def _root(self, scope: Scope) -> str:
        """Return the path before those of the console in the browser."""
        given = Headers(scope=scope).get("x-forwarded-prefix", "").rstrip("/")
        sender = (scope.get("client") or ("",))[0]
        trusted = self._options.proxy_header and sender in self._options.trusted_addresses
        return given if trusted and is_root(given) else self._options.root_path

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._names:
            return 421, "unknown host: start the console with --name for each of its names"
        site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        if method in SAFE:
            # A link of another site may lead here, but no other site may read or embed a page.
            if site in ("cross-site", "same-site") and mode != "navigate":
                return 403, "cross-site request refused"
            return None
        if site is not None and site not in ("same-origin", "none"):
            return 403, "cross-site request refused"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != hosts[0].lower():
            return 403, "request of another origin refused"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > MOST_BODY:
            return 413, "the request is too large"
        return None


def _name_of(host: str) -> str:
    """Return the name of a header Host without its port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()
