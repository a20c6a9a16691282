"""Narrow a selector to the messages that a circuit breaker lets a pool fire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queue_core.handling.breakers.breaker import WHOLE
from queue_core.handling.breakers.gate import FirePlan
from queue_core.handling.breakers.keys import condition, restricted

if TYPE_CHECKING:
    import pyarrow as pa

    from queue_core.selection.selection import AnySelector


def narrowed(selector: AnySelector | None, by: str | None, plan: FirePlan) -> AnySelector | None:
    """Return the selector of a firing: the pool's own, and the keys that may be fired."""
    keys = plan.without if plan.probe is None else frozenset({plan.probe})
    if by is None or not keys - {WHOLE}:
        return selector
    text = condition(by, keys - {WHOLE}, among=plan.probe is not None)
    if selector is None or isinstance(selector, str):
        return restricted(selector, [text])
    return _both(selector, by, keys - {WHOLE}, among=plan.probe is not None)


def _both(selector: Any, by: str, keys: frozenset[str], *, among: bool) -> AnySelector:
    """Return a function that selects what *selector* and the keys select."""
    # Not at the top: few pools have a function as their selector.
    import pyarrow as pa
    import pyarrow.compute as pc

    from queue_core.handling.breakers.keys import keys_of
    from queue_core.selector import Predicate

    own = selector if isinstance(selector, Predicate) else Predicate(selector)
    columns = own.columns

    def function(batch: pa.RecordBatch) -> pa.BooleanArray:
        mine = own.function(batch if columns is None else batch.select(list(columns)))
        found = keys_of(batch, by)
        among_them = pc.is_in(found.dictionary, value_set=pa.array(sorted(keys), pa.string()))
        theirs = among_them.take(found.indices)
        theirs = theirs if among else pc.invert(theirs)
        mine = mine.combine_chunks() if isinstance(mine, pa.ChunkedArray) else mine
        return pc.and_(mine, theirs)

    names = None if columns is None else [*columns, by]
    return Predicate(function, names)
