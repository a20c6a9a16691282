"""The specification holds within its bounds, and each of its guards is needed."""

from dataclasses import fields, replace

import pytest

from tests.model.explore import INVARIANTS, explore
from tests.model.spec import FIRED, LOADED, MAIN, SIDELINE, Bounds, Rules, Slice, transition

BOUNDS = {
    "crashes": Bounds(),
    "sweeps": Bounds(sweeps=True),
    "two lives": Bounds(zombies=True),
    "a handler beside the query": Bounds(handler=True, sweeps=True, tickets=2),
    "a restore of the source": Bounds(restores=True),
    "a restore of source and target": Bounds(restores=True, near=True),
    "a restore, with three messages": Bounds(restores=True, near=True, messages=3, tickets=4),
}

#: The guards, each with bounds within which its absence shows, and the invariant that breaks.
NEEDED = {
    "publish_once": ("crashes", "a message arrives once"),
    "acknowledge_committed": ("crashes", "a message is in a slice until it is done or has arrived"),
    "spare_living": ("sweeps", "a message arrives once"),
    "spare_planned": ("sweeps", "a message arrives once"),
    "skip_forgotten": (
        "a restore of the source",
        "a ticket that Spark has logged is not given out again",
    ),
    "fire_loaded": ("a handler beside the query", "a fired slice has one holder"),
    "move_whole": ("sweeps", "a message is in one slice at most"),
    "settle_held": ("a handler beside the query", "a message arrives once"),
    "compare_records": (
        "a restore of source and target",
        "a message is in a slice until it is done or has arrived",
    ),
    "acknowledge_first": (
        "a restore, with three messages",
        "a message is in a slice until it is done or has arrived",
    ),
    "refuse_forgotten": ("a restore of source and target", "a message arrives once"),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_the_invariants_hold_in_every_state(name):
    found = explore(BOUNDS[name])

    assert found.broken is None, "\n".join([found.broken, *found.trace])
    assert found.states > 100


def test_each_guard_is_tried():
    assert NEEDED.keys() == {field.name for field in fields(Rules)}


@pytest.mark.parametrize("guard", NEEDED)
def test_without_a_guard_an_invariant_breaks(guard):
    bounds, broken = NEEDED[guard]

    found = explore(BOUNDS[bounds], replace(Rules(), **{guard: False}))

    assert found.broken in INVARIANTS
    assert found.broken == broken, "\n".join(found.trace)
    assert len(found.trace) < 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(messages=3, epochs=3, batches=4, tickets=4, sweeps=True),
        Bounds(messages=3, epochs=3, batches=4, tickets=4, restores=True, near=True),
        Bounds(messages=3, epochs=3, batches=4, tickets=4, limits=(1, 3), zombies=True),
    ],
    ids=["sweeps", "restores", "two lives"],
)
def test_they_hold_within_wider_bounds(bounds):
    found = explore(bounds)

    assert found.broken is None, "\n".join([found.broken, *found.trace])


def test_the_steps_of_a_message():
    waiting = Slice(1)
    held = waiting.fired("1", 7)
    aside = waiting.loaded(SIDELINE)

    assert transition(None, waiting) == "load"
    # Out of a log, into the hand of the subscription's consumer.
    assert transition(None, held) == "take"
    assert transition(waiting, held) == "fire"
    assert transition(held, None) == "delete"
    assert transition(held, waiting) == "reload"
    assert transition(held, aside) == "sideline"
    assert transition(aside, waiting) == "shovel"
    assert transition(waiting, None) == "remove"
    # A quarantine takes nothing from the consumer that may have read the message.
    apart = replace(held, state="damaged")
    assert transition(held, apart) == "quarantine"
    assert transition(apart, held) == "repair"
    assert transition(apart, None) == "delete"
    assert transition(apart, aside) == "sideline"
    assert transition(apart, waiting) == "reload"
    assert transition(apart, replace(waiting, state="damaged")) == "leave"
    for before, after in [
        (None, aside.fired("1", 7)),
        (None, aside),
        (held, waiting.fired("2", 7)),
        (held, waiting.fired("1", 8)),
        (aside.fired("1", 7), waiting),
        (waiting, aside.fired("1", 7)),
        (replace(waiting, state="damaged"), None),
        (replace(waiting, state="damaged"), held),
        (replace(waiting, state="damaged"), apart),
        (held, replace(waiting, state="damaged")),
        (waiting, apart),
        (apart, waiting.fired("2", 7)),
    ]:
        assert transition(before, after) is None
    assert (waiting.magazine, waiting.state, held.state) == (MAIN, LOADED, FIRED)
