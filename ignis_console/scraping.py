"""The metrics for Prometheus, for a token of their own or any login."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from ignis_console.console import Console
from ignis_console.passwords import Role
from ignis_console.web import Call, guarded
from queue_core.watching.prometheus import CONTENT_TYPE

#: The path that Prometheus asks for by default.
PATH = "/metrics"


def route(console: Console) -> Route:
    """Return the route; it is the only one that a token opens."""
    return Route(PATH, guarded(console, _metrics, Role.LOOK, api=True, by_token=True))


def _metrics(console: Console, _: Call) -> Response:
    return Response(console.metrics(), media_type=CONTENT_TYPE)
