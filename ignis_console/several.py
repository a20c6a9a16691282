"""Actions on several queues, which a person ticks in the list: counted first, as every action."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import RedirectResponse, Response

from ignis_console import acting
from ignis_console.actions import Action
from ignis_console.ask import Ask
from ignis_console.web import Call, page, status_of
from queue_core.errors import BadOption, Conflict, IgnisError, Invalid

#: The actions that need no fields.
NAMES = ("pause", "resume", "sweep")


def show(action: Action, call: Call, failed: tuple[str, ...] = (), status: int = 200) -> Response:
    """Return the page that says what an action would do with each queue."""
    texts, counts = [], []
    for each in _calls(call):
        prepared = action.prepare(call.console, each.ask)
        assert prepared is not None, "it needs no fields"
        texts.append((each.ask.queue, prepared.text))
        counts.append(prepared.messages)
    shown = {"texts": texts, "counts": counts, "failed": failed, "action": action}
    return page(call, "several.html", status, **shown)


def do(action: Action, call: Call) -> Response:
    """Run an action on one queue after another; one that refuses does not keep it from others."""
    calls, expected = _calls(call), (call.ask.text("expected") or "").split()
    if len(expected) != len(calls):
        raise BadOption(f"{action.name}: count the messages first, and send their numbers")
    failed: list[IgnisError] = []
    for each, count in zip(calls, expected, strict=True):
        values = {"expected": count}
        try:
            acting.run(replace(each, ask=replace(each.ask, values=values)), action)
        except (Invalid, Conflict) as error:
            failed.append(error)
    if failed:
        return show(action, call, tuple(map(str, failed)), status_of(failed[0]))
    return RedirectResponse("/log", 303)


def _calls(call: Call) -> list[Call]:
    """Return a call for each queue that was ticked; raises `BadOption` if none was."""
    names = dict.fromkeys((call.ask.text("queues") or "").split())
    if not names:
        raise BadOption("tick queues in the list first")
    return [replace(call, ask=Ask({"queue": name})) for name in names]
