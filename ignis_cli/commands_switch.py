"""Commands for circuit breakers: list them, and open or close them by hand."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ignis_cli.app import command
from ignis_cli.display import answer, complain, show
from queue_core import Store


class Turn(StrEnum):
    """What a person does with a breaker."""

    open = "open"
    close = "close"
    auto = "auto"


@command("Inspect")
def breakers(store: Store) -> None:
    """List the circuit breakers that have opened, and their states."""
    show(store.view("breakers"))


@command("By hand")
def breaker(
    store: Store,
    turn: Annotated[Turn, typer.Argument(help="open, close, or auto: leave it to itself.")],
    name: Annotated[str, typer.Argument(help="The breaker: by default, its queues.")],
) -> None:
    """
    Open or close a circuit breaker by hand.

    While it is open, its handler gets no messages. Processes notice it within a second.
    """
    unknown = _is_unknown(store, name)
    switch = store.breaker(name)
    {Turn.open: switch.open, Turn.close: switch.close, Turn.auto: switch.release}[turn]()
    done = {Turn.open: "open", Turn.close: "closed", Turn.auto: "left to itself"}[turn]
    if unknown:
        complain(
            f"no breaker {name!r} has opened so far, and no queue has this name; check it with: "
            "ignis breakers"
        )
    answer(f"breaker {name} is {done}", breaker=name, turn=turn.value)


def _is_unknown(store: Store, name: str) -> bool:
    """
    Return whether no handler is known that has a breaker of that name.

    The catalog learns a name when its breaker opens; by default, it consists of names of queues.
    """
    if name in store.view("breakers").column("breaker").to_pylist():
        return False
    return not set(name.split(",")) <= set(store.queues())
