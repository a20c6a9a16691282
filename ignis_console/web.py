"""Requests and answers: who asks is known, may ask it, and every error becomes an answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from ignis_console.ask import Ask
from ignis_console.auth import Visitor
from ignis_console.console import Console
from ignis_console.guard import MOST_BODY, SAFE
from ignis_console.passwords import Role
from ignis_console.rendering import render
from queue_core.errors import (
    CatalogForbidden,
    Conflict,
    Damaged,
    IgnisError,
    Invalid,
    NoSuchQueue,
    NoSuchStore,
    Unavailable,
)
from queue_core.values.json_text import as_json


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a visitor who is known."""

    console: Console
    request: Request
    identity: Visitor
    ask: Ask


Handler = Callable[[Call], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def guarded(console: Console, handler: Handler, role: Role, *, by_token: bool = False) -> Endpoint:
    """
    Return an endpoint that runs *handler* in a thread, for logins with a role.

    With *by_token*, the token for the metrics is as good as a login.
    """

    def answer(request: Request, body: bytes) -> Response:
        identity = console.auth.identify(request, by_token=by_token)
        if identity is None:
            return _unknown(console, request)
        if role is Role.OPERATE and not identity.may_operate:
            raise HTTPException(403, f"{identity.name} may look, but not change anything")
        pairs, booleans = request.query_params.multi_items(), frozenset[str]()
        values = _once(pair for pair in pairs if pair[0] != "queues")
        if ticked := request.query_params.getlist("queues"):
            # A list of ticked boxes.
            values["queues"] = " ".join(ticked)
        if request.method not in SAFE:
            values, booleans = fields_of(request, body)
            _check_token(request, identity, values)
        path = {key: str(value) for key, value in request.path_params.items()}
        return handler(Call(console, request, identity, Ask(path, values, booleans)))

    async def endpoint(request: Request) -> Response:
        body = b"" if request.method in SAFE else await read_body(request)
        return await run_in_threadpool(answer, request, body)

    return endpoint


def is_api(request: Request) -> bool:
    """Return whether a program asks, which wants errors in JSON."""
    return request.url.path.startswith("/api/") or request.url.path == "/metrics"


def _unknown(console: Console, request: Request) -> Response:
    if is_api(request):
        raise HTTPException(401, "log in first, or send Basic authorization")
    if console.auth.by_proxy:
        raise HTTPException(401, "the request lacks the header in which the proxy names the login")
    if request.method not in SAFE:
        raise HTTPException(401, "the login has ended; log in again")
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/login?{urlencode({'next': wanted})}", 303)


def fields_of(request: Request, body: bytes) -> tuple[dict[str, str], frozenset[str]]:
    """Return the fields of a body, and the names of the JSON booleans among them."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return _of_json(body)
    if kind == "application/x-www-form-urlencoded" or not (kind or body):
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)
        except ValueError as error:
            raise HTTPException(400, "the form cannot be read") from error
        return _once(pairs), frozenset()
    raise HTTPException(415, "send application/json or application/x-www-form-urlencoded")


def _of_json(body: bytes) -> tuple[dict[str, str], frozenset[str]]:
    try:
        found = json.loads(body or b"{}", object_pairs_hook=_once)
    except RecursionError as error:
        raise HTTPException(400, "the body is nested too deeply") from error
    except ValueError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise HTTPException(400, "the body must be a JSON object")
    booleans = frozenset(name for name, value in found.items() if isinstance(value, bool))
    texts = {name: _text(name, value) for name, value in found.items() if value is not None}
    return texts, booleans


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return fields by their names; refuses one that is given twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise HTTPException(400, f"{ascii(name)[:40]} is given twice; give each field once")
        found[name] = value
    return found


def _text(name: str, value: Any) -> str:
    """Return a JSON field as the text of a form; a list of ids is joined by spaces."""
    many = isinstance(value, list) and name == "ids"
    items = value if many else [value]
    if any(isinstance(item, list | dict) or (many and isinstance(item, bool)) for item in items):
        raise HTTPException(
            400, f"{ascii(name)[:40]}: use a text or a number; only ids may be a list"
        )
    # Booleans as `Ask.flag` reads them.
    texts = [str(item).lower() if isinstance(item, bool) else str(item) for item in items]
    try:
        " ".join([name, *texts]).encode()
    except UnicodeEncodeError as error:
        raise HTTPException(400, f"{ascii(name)[:40]}: the text is not valid Unicode") from error
    return " ".join(texts)


def _check_token(request: Request, identity: Visitor, form: Mapping[str, str]) -> None:
    if identity.csrf is None:
        return
    given = request.headers.get("x-csrf-token") or form.get("csrf", "")
    if not compare_digest(given.encode(), identity.csrf.encode()):
        token = "the form belongs to another login; load the page again"
        if is_api(request):
            token = "send the text csrf of /api/session in the header X-CSRF-Token"
        raise HTTPException(403, f"the request lacks the token of this login: {token}")


async def read_body(request: Request) -> bytes:
    """Return the body of a request; raises `HTTPException` if it is too large."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > MOST_BODY:
                raise HTTPException(413, "the request is too large")
            parts.append(part)
    except ClientDisconnect:
        # No one reads the answer.
        raise HTTPException(400, "the request ended early") from None
    return b"".join(parts)


_STATUS: tuple[tuple[type[IgnisError], int], ...] = (
    (NoSuchQueue, 404),
    (CatalogForbidden, 403),
    (NoSuchStore, 503),
    (Damaged, 503),
    (Unavailable, 503),
    (Invalid, 400),
    (Conflict, 409),
)


def status_of(error: IgnisError) -> int:
    """Return the status of HTTP for an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


_TITLES = {
    400: "The request is not valid",
    401: "Log in first",
    403: "Not allowed",
    404: "Not found",
    409: "Someone else changed this first",
    429: "Too many attempts",
    503: "The store is not available",
}


def failure(request: Request, error: Exception) -> Response:
    """Return the answer for an error: a page, or JSON."""
    status, kind, text = 500, type(error).__name__, "The console has failed; its log says how."
    if isinstance(error, HTTPException):
        status, kind, text = error.status_code, "Refused", error.detail
        if status in (404, 405):
            kind = "NoSuchPage"
            text = f"{request.method} {request.url.path} is not a page of the console"
    elif isinstance(error, IgnisError):
        status, text = status_of(error), str(error)
    if is_api(request):
        return JSONResponse({"error": kind, "message": text}, status)
    failed = "The console has failed" if status >= 500 else _TITLES[400]
    title = _TITLES.get(status, failed)
    return HTMLResponse(render("error.html", title=title, text=text, identity=None), status)


def page(call: Call, template: str, status: int = 200, **values: Any) -> Response:
    """Return a page for a visitor who is known."""
    text = render(
        template,
        identity=call.identity,
        path=call.request.url.path,
        problem_count=call.console.problem_count(),
        logs_out=not call.console.auth.by_proxy,
        **values,
    )
    return HTMLResponse(text, status)


def in_json(value: Any) -> Response:
    """Return a model as JSON."""
    return Response(as_json(value), media_type="application/json")
