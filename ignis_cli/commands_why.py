"""Commands that say what is wrong: the problems of a store, and why a queue does not move."""

from __future__ import annotations

import typer

from ignis_cli.app import AnyName, MatchingQueue, command
from ignis_cli.display import in_json, say, show_json
from ignis_cli.invocation import BROKEN
from queue_core import Store
from queue_core.watching import blocked, present, space
from queue_core.watching import problems as engine
from queue_core.watching.problem_kinds import ProblemGroup, Severity, grouped
from queue_core.watching.wording import age, counted

_INSPECT = "Inspect"
#: The most queues that are shown for one kind of problem.
MOST_SHOWN = 20


@command(_INSPECT)
def problems(store: Store, queue: AnyName = None) -> None:
    """
    List what a person should look at, the worst first, with what to do.

    The exit code is 1 if a problem is critical. With --json, each problem is a line.
    """
    if queue is None:
        found = engine.find(present.read(store.catalog, store.storage))
    else:
        found = engine.of_queue(present.read_queue(store.catalog, queue))
    if in_json.get():
        for each in found:
            show_json(each)
    elif not found:
        say("there are no problems")
    else:
        for group in grouped(found):
            _show(group)
    if any(each.severity is Severity.CRITICAL for each in found):
        raise typer.Exit(BROKEN)


@command(_INSPECT)
def why(queue: MatchingQueue) -> None:
    """
    Say why the messages of a queue are not handled, or not fast enough, and what to do.

    With --json, one object has the figures of the queue and the reasons.
    """
    store = queue.store
    figures = present.read_queue(store.catalog, queue.name)
    rules = []
    if figures.waiting and figures.state == "active":
        rules = blocked.look(store.catalog, store.storage.uri, queue.info)
    found = engine.why(figures, rules, space.read(store.catalog, store.storage))
    if in_json.get():
        names = ("waiting", "oldest_age", "in_flight", "consumers")
        shown = {name: getattr(figures, name) for name in names}
        show_json({"queue": queue.name, **shown, "reasons": found})
        return
    oldest = "" if figures.oldest_age is None else f", the oldest for {age(figures.oldest_age)}"
    say(
        f"{queue.name}: {figures.waiting or 0:,} waiting{oldest}; {figures.in_flight or 0:,} in "
        f"flight; {counted(figures.consumers or 0, 'consumer', 'consumers')} connected"
    )
    for each in found:
        say(f"- {each.text}\n  {each.advice}")
    if not found:
        say(
            "Nothing is known to hold its messages back."
            if figures.waiting
            else "No message waits."
        )


def _show(group: ProblemGroup) -> None:
    """Print the problems of a kind."""
    of = [counted(group.queues, "queue", "queues")] if group.queues else []
    of += [counted(group.messages)] if group.messages else []
    title = f"{group.title}: {', '.join(of)}" if of else group.title
    say(f"{group.severity or '':8}  {title}\n          {group.advice}")
    for each in group.problems[:MOST_SHOWN]:
        say(f"  {each.queue}  {each.text}" if each.queue else f"  {each.text}")
    if (left := group.count - MOST_SHOWN) > 0:
        say(f"  and {left:,} more; --json lists all")
