"""The application: the routes of pages, their twins in the API, logins and static files."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from ignis_console import acting, openapi
from ignis_console.actions import ACTIONS
from ignis_console.ask import Ask
from ignis_console.auth import SESSION_SECONDS, address_of
from ignis_console.config import ConsoleOptions
from ignis_console.console import Console
from ignis_console.guard import Guard
from ignis_console.page_table import Page
from ignis_console.pages import PAGES
from ignis_console.passwords import Role
from ignis_console.rendering import ROOT, STATIC, render
from ignis_console.web import (
    Call,
    Handler,
    failure,
    fields_of,
    guarded,
    in_json,
    page,
    read_body,
    status_of,
)
from queue_core import __version__
from queue_core.errors import BadOption, IgnisError, Invalid, NoSuchQueue
from queue_core.store import Store
from queue_core.watching.prometheus import CONTENT_TYPE

#: Routes that need no login.
OPEN = ("/login", "/static")


def create_app(store: Store, options: ConsoleOptions) -> Starlette:
    """Return the application; its console is `Starlette.state.console`, which the caller closes."""
    console = Console(store, options)
    routes: list[Route | Mount] = [*_logins(console)]
    for each in PAGES:
        routes.append(_route(console, each.path, partial(_page, each), Role.LOOK))
        routes.append(_route(console, each.api, partial(_twin, each), Role.LOOK))
    for action in ACTIONS.values():
        path = f"/queues/{{queue}}/actions/{action.name}"
        places = [(path, acting.show, acting.do), (f"/api{path}", acting.api_show, acting.api_do)]
        if action.name in acting.ON_SEVERAL:
            places.append((f"/actions/{action.name}", acting.show_several, acting.do_several))
        for at, show, do in places:
            routes.append(_route(console, at, partial(show, action), Role.OPERATE))
            routes.append(_route(console, at, partial(do, action), Role.OPERATE, "POST"))
    by_id = "/queues/{queue}/message"
    routes.append(_route(console, by_id, _message_by_id, Role.LOOK))
    routes.append(_route(console, "/api/session", _session, Role.LOOK))
    routes.append(_route(console, "/api/openapi.json", _openapi, Role.LOOK))
    metrics = guarded(console, _metrics, Role.LOOK, by_token=True)
    routes.append(Route("/metrics", metrics))
    routes.append(Mount("/static", _Static(directory=STATIC)))
    if options.root_path in {f"/{each.path.split('/')[1]}" for each in routes}:
        raise BadOption(f"--root-path {options.root_path}: the console has a page of this name")
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, options=options)],
        exception_handlers=dict.fromkeys((HTTPException, IgnisError, Exception), failure),
    )
    app.state.console = console
    return app


def _route(console: Console, path: str, handler: Handler, role: Role, method: str = "GET") -> Route:
    return Route(path, guarded(console, handler, role), methods=[method])


def _page(each: Page, call: Call) -> Response:
    asked, error, status = call.ask.values, None, 200
    try:
        model = each.model(call.console, call.ask)
    except Invalid as invalid:
        if each.name != "messages" or not asked or isinstance(invalid, NoSuchQueue):
            raise
        # A selector that cannot be understood is shown beside its field.
        model, error = each.model(call.console, Ask(call.ask.path)), str(invalid)
        status = status_of(invalid)
    return page(
        call,
        f"{each.name}.html",
        status,
        model=model,
        asked=asked,
        labels=acting.LABELS,
        error=error,
        notice=_notice(call.console, asked.get("done", "")),
    )


def _notice(console: Console, key: str) -> str | None:
    """Return what the action with an id has done, for the page that follows it."""
    entry = console.log.find(key)
    if entry is None or entry.messages is None:
        return None
    redrive = None
    if entry.job is not None:
        _, found = console.redrives().seen
        redrive = next((each for each in found if each["job"] == entry.job), None)
    return acting.said(ACTIONS[entry.action], entry, redrive)


def _message_by_id(call: Call) -> Response:
    """Lead from the form of an id to the page of the message."""
    queue, message = quote(call.ask.queue, safe=""), quote(call.ask.text("id") or "", safe="")
    return RedirectResponse(f"/queues/{queue}/messages/{message}", 303)


def _twin(each: Page, call: Call) -> Response:
    return in_json(each.model(call.console, call.ask))


def _metrics(call: Call) -> Response:
    """Return the metrics for Prometheus, for a token of their own or any login."""
    return Response(call.console.metrics(), media_type=CONTENT_TYPE)


def _session(call: Call) -> Response:
    """Say who asks, and with which token a script of a page may act."""
    identity = call.identity
    return in_json({"name": identity.name, "role": identity.role, "csrf": identity.csrf})


def _openapi(_: Call) -> Response:
    operations = [each.operation for each in PAGES]
    operations += [each for action in ACTIONS.values() for each in acting.operations(action)]
    document = openapi.document(operations, __version__)
    return in_json(document | {"servers": [{"url": ROOT.get()}]} if ROOT.get() else document)


class _Static(StaticFiles):
    """Static files, which browsers keep: their addresses change with their contents."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _logins(console: Console) -> list[Route]:
    """Return the routes of logins; a console behind a proxy has none, because the proxy logs in."""
    if console.auth.by_proxy:
        return []

    async def form(request: Request) -> Response:
        key = request.query_params.get("key")
        wanted = own_path(request.query_params.get("next", "/"))
        if key and console.auth.key is not None:
            return await run_in_threadpool(_log_in, console, request, "", key, wanted)
        return _login_form(console, wanted)

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
        return _login_form(console, wanted, text, error.status_code)
    if token is None:
        wrong = "name and password" if console.auth.key is None else "key"
        return _login_form(console, wanted, f"There is no login with this {wrong}.", 401)
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


def _login_form(
    console: Console, wanted: str, error: str | None = None, status: int = 200
) -> Response:
    text = render(
        "login.html",
        identity=None,
        by_key=console.auth.key is not None,
        wanted=wanted,
        error=error,
    )
    return HTMLResponse(text, status)
