"""
Show what an action would do, and do it: the pages and the API of the table of actions.

An action may be for several queues, ticked in the list. Their messages are counted first, too.
"""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from ignis_console import redrives
from ignis_console.action_log import LogEntry
from ignis_console.actions import ACTIONS, Action, PreparedAction
from ignis_console.ask import YES, Ask, Parameter
from ignis_console.auth import address_of
from ignis_console.openapi import Operation
from ignis_console.redrives import Redrive
from ignis_console.web import Call, in_json, page, status_of
from queue_core.catalog.records import progress
from queue_core.catalog.records.acts import DOER, Doer
from queue_core.errors import BadOption, Conflict, IgnisError, Invalid, NoSuchQueue, NoSuchStore
from queue_core.selection import rounds
from queue_core.watching import wording

#: What the fields of actions are called on pages.
LABELS = {each.name: each.label for action in ACTIONS.values() for each in action.parameters}
#: The actions that need no fields, so that they can be for several queues.
ON_SEVERAL = ("pause", "resume", "sweep")
#: Fields of forms that no log needs.
_OF_FORMS = ("csrf", "expected", "shown", "confirm", "refused")
#: Seconds after which the page of an action answers, and the action goes on.
ANSWER_SECONDS = 2.0
#: Seconds for which a further action waits for its turn.
PATIENCE = 1.0
#: The longest address of a page.
_MOST_ADDRESS = 8000


@dataclass(frozen=True, slots=True)
class ActionAnswer:
    """An action: how many messages it means now, or has changed."""

    action: str
    queue: str
    #: Null: the parameters do not say yet which messages are meant.
    messages: int | None
    text: str
    #: The job that it started, which moves the messages later; null: none.
    job: str | None = None
    #: The name of this count; an action that gets it changes only the counted messages. Null: the
    #: action follows a rule, or concerns no messages or too many.
    shown: str | None = None


def show(action: Action, call: Call) -> Response:
    """Return the page that says what an action would do."""
    return _form(call, action, call.console.refusals.get(call.ask.text("refused")), 200)


def do(action: Action, call: Call) -> Response:
    """Run an action from its form."""
    try:
        entry = run(call, action)
    except (NoSuchQueue, NoSuchStore):
        raise
    except (Invalid, Conflict) as error:
        return _refused(call, action, error)
    if entry is None:
        return RedirectResponse("/log", 303)
    queue = quote(call.ask.queue, safe="")
    return RedirectResponse(f"/queues/{queue}?done={entry.id}", 303)


def api_show(action: Action, call: Call) -> Response:
    """Tell a script what an action would do."""
    prepared = _prepare(call, action)
    messages, text = None, action.about
    if prepared:
        messages = prepared.messages
        text = " ".join([prepared.text, *(f"{each}." for each in prepared.held.values())])
    shown = _remembered(call, prepared)
    return in_json(ActionAnswer(action.name, call.ask.queue, messages, text, shown=shown))


def api_do(action: Action, call: Call) -> Response:
    """Run an action for a script."""
    entry = run(call, action, inf)
    assert entry is not None, "a script waits for the end"
    text = said(action, entry)
    return in_json(ActionAnswer(action.name, entry.queue, entry.messages, text, entry.job))


def show_several(
    action: Action, call: Call, failed: tuple[str, ...] = (), status: int = 200
) -> Response:
    """Return the page that says what an action would do with each queue."""
    texts, counts = [], []
    for each in _calls(call):
        try:
            prepared = action.prepare(call.console, each.ask)
        except NoSuchQueue:
            if not failed:
                raise
            # This queue was dropped meanwhile; go on with the others.
            continue
        assert prepared is not None, "it needs no fields"
        texts.append((each.ask.queue, prepared.text))
        counts.append(prepared.messages)
    shown = {"texts": texts, "counts": counts, "failed": failed, "action": action}
    return page(call, "several.html", status, **shown)


def do_several(action: Action, call: Call) -> Response:
    """Run an action on one queue after another, even if it is refused for some of them."""
    calls, expected = _calls(call), (call.ask.text("expected") or "").split()
    if len(expected) != len(calls):
        raise BadOption(f"{action.name}: count the messages first, and send their numbers")
    failed: list[str] = []
    status = 200
    for each, count in zip(calls, expected, strict=True):
        values = {"expected": count}
        try:
            run(replace(each, ask=replace(each.ask, values=values)), action)
        except (Invalid, Conflict) as error:
            failed.append(f"{each.ask.queue}: {error}")
            status = status_of(error)
        except HTTPException as error:
            # The actions on those before it go on, and leave no room for this one.
            failed.append(f"{each.ask.queue}: {error.detail}")
            status = error.status_code
    if failed:
        return show_several(action, call, tuple(failed), status)
    return RedirectResponse("/log", 303)


def operations(action: Action) -> tuple[Operation, Operation]:
    """Return the description of an action for OpenAPI."""
    path = f"/api/queues/{{queue}}/actions/{action.name}"
    fields = action.parameters
    body = (*fields, Parameter("expected", "The number of messages that was shown.", kind="number"))
    if "ids" in [each.name for each in fields]:
        body += (Parameter("shown", "The name of the count: change no other messages."),)
    if action.destroys:
        body += (Parameter("confirm", "The name of the queue, once more."),)
    before = f"Count the messages that {action.name} would concern."
    return (
        Operation("get", path, f"count_{action.name}", before, ActionAnswer, fields),
        Operation("post", path, f"run_{action.name}", action.about, ActionAnswer, (), body),
    )


def said(action: Action, entry: LogEntry, redrive: Redrive | None = None) -> str:
    """Return what has happened, in words; *redrive*: as it is now, if the action started one."""
    of = wording.counted(entry.messages or 0)
    if redrive is not None:
        return redrives.said(redrive)
    if entry.job is not None:
        return f"Redrive {entry.job} of {of} was started, as a job."
    return action.done.format(of)


def _calls(call: Call) -> list[Call]:
    """Return a call for each queue that was ticked; raises `BadOption` if none was."""
    names = dict.fromkeys((call.ask.text("queues") or "").split())
    if not names:
        raise BadOption("tick queues in the list first")
    return [replace(call, ask=Ask({"queue": name})) for name in names]


def _remembered(call: Call, prepared: PreparedAction | None) -> str | None:
    """Remember the counted messages; return the name of the count, by which an action gets them."""
    if prepared is None or prepared.these is None:
        return None
    return call.console.counted.keep(prepared.these)


def _refused(call: Call, action: Action, error: IgnisError) -> Response:
    """Redirect to the page of an action, which counts again; a reload does not repeat the form."""
    fields = _chosen(call.ask, action)
    fields["refused"] = call.console.refusals.keep(str(error)) or ""
    path = f"/queues/{quote(call.ask.queue, safe='')}/actions/{action.name}?{urlencode(fields)}"
    if len(path) > _MOST_ADDRESS:
        return _form(call, action, str(error), status_of(error))
    return RedirectResponse(path, 303)


def _prepare(call: Call, action: Action) -> PreparedAction | None:
    call.ask.only([*(each.name for each in action.parameters), *_OF_FORMS])
    for name in sorted(call.ask.booleans - _boxes(action)):
        raise BadOption(f"{name}: use a number or a text, not true or false")
    return action.prepare(call.console, call.ask)


def _boxes(action: Action) -> set[str]:
    """Return the fields that are yes or no."""
    return {"group", *(each.name for each in action.fields if each.kind == "check")}


def _asked(ask: Ask, action: Action) -> dict[str, str]:
    """Return what a request asks for, without the boxes that are not checked."""
    boxes = _boxes(action)
    yes = {name for name in boxes if (ask.text(name) or "").lower() in YES}
    return {name: text for name, text in ask.values.items() if name not in boxes - yes}


def _chosen(ask: Ask, action: Action) -> dict[str, str]:
    """Return what a person has chosen."""
    asked = _asked(ask, action)
    return {name: text for name, text in asked.items() if text and name not in _OF_FORMS}


def run(call: Call, action: Action, patience: float = ANSWER_SECONDS) -> LogEntry | None:
    """Run an action; return None if it takes longer than *patience* seconds, and goes on."""
    prepared = _prepare(call, action)
    if prepared is None:
        raise BadOption(f"{action.name}: choose messages first")
    _check(call, action, prepared)
    chosen = _chosen(call.ask, action)
    entry = LogEntry(
        at=_now(call),
        who=call.identity.name,
        address=address_of(call.request),
        action=action.name,
        queue=call.ask.queue,
        chosen={name: value[:1000] for name, value in chosen.items()},
        messages=prepared.messages,
    )
    future = call.console.actions.submit(_run_now, call, prepared, entry)
    first = min(PATIENCE, patience)
    done, _ = wait([future], first)
    if not done and future.cancel():
        raise HTTPException(
            503, "nothing was changed: other actions wait for the catalog; try again later"
        )
    done, _ = wait([future], None if patience == inf else patience - first)
    return future.result() if done else None


def _now(call: Call) -> str:
    """Return the catalog's time, or this machine's while the catalog cannot be reached."""
    try:
        return (wording.moment(call.console.store.catalog.now()) or wording.EPOCH).isoformat()
    except IgnisError:
        return datetime.now(UTC).isoformat()  # noqa: TID251 - it cannot be asked


def _run_now(call: Call, prepared: PreparedAction, entry: LogEntry) -> LogEntry:
    """Run an action and log it; its rounds are brief, so that it keeps no firing waiting."""
    log = call.console.log
    entry = log.begin(entry)
    token = DOER.set(Doer("console", entry.who, entry.id, entry.chosen))
    try:
        with rounds.brief(), progress.told_to(partial(log.advance, entry.id)):
            changed = prepared.run()
    except Exception as error:
        text = str(error) if isinstance(error, IgnisError) else repr(error)
        log.end(replace(entry, at=_now(call), messages=None, error=text))
        raise
    else:
        if isinstance(changed, str):
            return log.end(replace(entry, at=_now(call), job=changed))
        return log.end(replace(entry, at=_now(call), messages=changed))
    finally:
        DOER.reset(token)
        # An action that failed may have changed a part.
        call.console.changed(entry.queue)


def _check(call: Call, action: Action, prepared: PreparedAction) -> None:
    """Raise unless the person has seen the number, and typed the name where it is asked for."""
    if call.ask.text("expected") is None:
        raise BadOption(
            f"{action.name}: count the messages first, and send their number as expected"
        )
    shown = call.ask.number("expected", 0, 0, 10**18)
    if action.on_messages and prepared.messages > shown:
        raise Conflict(
            f"nothing was changed: {wording.counted(shown, 'message was', 'messages were')} "
            f"shown, and now there are {wording.number(prepared.messages)}; look again"
        )
    if action.destroys and call.ask.text("confirm") != call.ask.queue:
        raise BadOption(f"nothing was changed: type the name of the queue, {call.ask.queue!r}")


def _form(call: Call, action: Action, error: str | None, status: int) -> Response:
    prepared = None
    # Without the former count, so that it counts anew.
    values = {name: text for name, text in call.ask.values.items() if name not in _OF_FORMS}
    call = replace(call, ask=replace(call.ask, values=values))
    try:
        prepared = _prepare(call, action)
    except (NoSuchQueue, NoSuchStore):
        raise
    except Invalid as invalid:
        error, status = error or str(invalid), status_of(invalid)
    return page(
        call,
        "action.html",
        status,
        queue=call.ask.queue,
        action=action,
        asked=_asked(call.ask, action),
        prepared=prepared,
        shown=_remembered(call, prepared),
        error=error,
    )
