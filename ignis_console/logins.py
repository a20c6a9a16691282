"""Log in and out."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ignis_console.auth import SESSION_SECONDS, address_of
from ignis_console.console import Console
from ignis_console.passwords import Role
from ignis_console.rendering import ROOT, render
from ignis_console.web import Call, fields_of, guarded, read_body


def routes(console: Console) -> list[Route]:
    """Return the routes; a console behind a proxy has none, because the proxy logs in."""
    if console.auth.by_proxy:
        return []

    async def form(request: Request) -> Response:
        key = request.query_params.get("key")
        wanted = own_path(request.query_params.get("next", "/"))
        if key and console.auth.key is not None:
            return await run_in_threadpool(_log_in, console, request, "", key, wanted)
        return _form(console, wanted)

    async def submitted(request: Request) -> Response:
        fields, _ = fields_of(request, await read_body(request))
        name, password = fields.get("name", ""), fields.get("password", "")
        wanted = own_path(fields.get("next", "/"))
        return await run_in_threadpool(_log_in, console, request, name, password, wanted)

    return [
        Route("/login", form, methods=["GET"]),
        Route("/login", submitted, methods=["POST"]),
        Route("/logout", guarded(console, _log_out, Role.LOOK), methods=["POST"]),
    ]


def own_path(text: str) -> str:
    """Return a path of the console; that of the first page for any other address."""
    inside = text.startswith("/") and not text.startswith("//")
    return text if inside and "\\" not in text and text.isprintable() else "/"


def _log_in(console: Console, request: Request, name: str, password: str, wanted: str) -> Response:
    try:
        token = console.auth.log_in(name, password, address_of(request))
    except HTTPException as error:
        text = f"{error.detail[:1].upper()}{error.detail[1:]}."
        return _form(console, wanted, text, error.status_code)
    if token is None:
        wrong = "name and password" if console.auth.key is None else "key"
        return _form(console, wanted, f"There is no login with this {wrong}.", 401)
    response = RedirectResponse(wanted, 303)
    response.set_cookie(
        console.auth.cookie(request),
        token,
        max_age=int(SESSION_SECONDS),
        httponly=True,
        secure=console.auth.is_secure(request),
        # Lax, so that a link in an alert leads to its page. Forms bring a token besides.
        samesite="lax",
        path=f"{ROOT.get()}/",
    )
    return response


def _log_out(call: Call) -> Response:
    cookie = call.console.auth.cookie(call.request)
    call.console.auth.log_out(call.request.cookies.get(cookie, ""))
    response = RedirectResponse("/login", 303)
    secure = call.console.auth.is_secure(call.request)
    response.delete_cookie(cookie, path=f"{ROOT.get()}/", secure=secure)
    return response


def _form(console: Console, wanted: str, error: str | None = None, status: int = 200) -> Response:
    text = render(
        "login.html",
        identity=None,
        by_key=console.auth.key is not None,
        wanted=wanted,
        error=error,
    )
    return HTMLResponse(text, status)
