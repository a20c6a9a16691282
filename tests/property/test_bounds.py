"""A bounded queue compared with a plain list, for any order of loads, firings and settlements."""

from __future__ import annotations

import tempfile

from hypothesis import example, given
from hypothesis import strategies as st

from queue_core import Store
from queue_core.errors import QueueFull
from queue_core.values.settings import ROOMS
from tests.books import audit
from tests.factories import main, make_queue, numbers_of, orders

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["load", "merge", "fire", "delete", "reload", "sideline"]),
        st.integers(1, 7),
    ),
    min_size=5,
    max_size=25,
)


@given(
    size=st.integers(1, 8),
    overflow=st.sampled_from(["fail", "ring"]),
    room=st.sampled_from(ROOMS),
    steps=STEPS,
)
@example(
    size=1,
    overflow="ring",
    room="on_fire",
    steps=[("load", 1), ("fire", 1), ("load", 1), ("reload", 1), ("merge", 1)],
)
@example(
    size=1,
    overflow="fail",
    room="on_fire",
    steps=[("load", 1), ("fire", 1), ("load", 1), ("reload", 1), ("merge", 1)],
)
def test_a_bounded_queue_does_what_a_list_does(size: int, overflow: str, room: str, steps) -> None:
    with tempfile.TemporaryDirectory() as path, Store.open(path) as store:
        queue = make_queue(store, key="number", max_size=size, overflow=overflow, room=room)
        waiting: list[int] = []
        flying: dict[int, int] = {}
        number = 0
        for verb, count in steps:
            if verb == "load":
                new, number = list(range(number, number + count)), number + count
                taking = len(flying) if room == "on_delete" else 0
                if fits(size, overflow, len(waiting), taking, count):
                    queue.load(orders(count, new[0]))
                    waiting = (waiting + new)[-(size - taking) :]
                else:
                    refused(queue, count, new[0])
            elif verb == "merge":
                # Merged messages keep their places, interleaved and in several segments.
                ids = queue.fire("all").ids.to_pylist()
                for some in (ids[::2], ids[1::2]):
                    queue.reload(some)
                for same in waiting[count - 1 :: 2]:
                    queue.load(orders(1, same), policy="merge(last(amount))")
            elif verb == "fire":
                firing = queue.fire(count)
                fired = numbers_of(firing.messages)
                assert fired == waiting[:count]
                waiting = waiting[count:]
                flying |= dict(zip(fired, firing.ids.to_pylist(), strict=True))
            else:
                some = list(flying)[::count]
                getattr(queue, verb)([flying.pop(n) for n in some])
                if verb == "reload":
                    waiting = sorted(waiting + some)
            assert main(queue) == sorted([*waiting, *flying])
            # Messages that come back may exceed a bound that does not count them in flight.
            assert room == "on_fire" or len(waiting) + len(flying) <= size
        audit(store)


def fits(size: int, overflow: str, waiting: int, flying: int, count: int) -> bool:
    """Return whether *count* messages fit; in a ring, next to those in flight."""
    if overflow == "ring":
        return flying + min(count, size) <= size
    return waiting + flying + count <= size


def refused(queue, count: int, first: int) -> None:
    try:
        queue.load(orders(count, first))
    except QueueFull:
        return
    raise AssertionError("there was no room")
