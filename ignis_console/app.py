"""The application: the routes of pages, their twins in the API, logins and static files."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from ignis_console import acting, logins, openapi, several
from ignis_console.actions import ACTIONS
from ignis_console.ask import Ask
from ignis_console.config import ConsoleOptions
from ignis_console.console import Console
from ignis_console.guard import Guard
from ignis_console.page_table import Page
from ignis_console.pages import PAGES
from ignis_console.passwords import Role
from ignis_console.rendering import ROOT, STATIC
from ignis_console.web import Call, Handler, failure, guarded, in_json, page, status_of
from queue_core import __version__
from queue_core.errors import BadOption, IgnisError, Invalid, NoSuchQueue
from queue_core.store import Store
from queue_core.watching.prometheus import CONTENT_TYPE

#: Routes for which nobody needs to be logged in.
OPEN = ("/login", "/static")


def create_app(store: Store, options: ConsoleOptions) -> Starlette:
    """Return the application; its console is `Starlette.state.console`, which the caller closes."""
    console = Console(store, options)
    routes: list[Route | Mount] = [*logins.routes(console)]
    for each in PAGES:
        routes.append(_route(console, each.path, partial(_page, each), Role.LOOK))
        routes.append(_route(console, each.api, partial(_twin, each), Role.LOOK))
    for action in ACTIONS.values():
        path = f"/queues/{{queue}}/actions/{action.name}"
        places = [(path, acting.show, acting.do), (f"/api{path}", acting.api_show, acting.api_do)]
        if action.name in several.NAMES:
            places.append((f"/actions/{action.name}", several.show, several.do))
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


def _notice(console: Console, number: str) -> str | None:
    """Return what the action of that number has done, for the page that follows it."""
    entry = console.log.find(number)
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
