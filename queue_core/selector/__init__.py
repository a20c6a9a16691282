"""Select and order messages: the same mechanism serves the rules of consumers and queues.

A `Selector` is a condition over columns, and an `Order` is the order of the matching messages.
Users write both as SQL. Each is parsed once, and then evaluated on Arrow columns or on statistics,
so that slices without a match are never opened. They can read only the given columns: no file, no
network, no clock. A condition can also be a Python function of the columns, a `Predicate`.

    text -> `syntax` -> `grammar` (with `functions`, `arithmetic`, `casts`) -> `nodes`
    nodes -> `predicate`, `order` (on rows), `prune` (on statistics)

Values have Spark's meaning, with these differences: an overflow or a failure is NULL, a timestamp
without a zone is in UTC, a text constant is converted once, when the selector is parsed, to the
type it is compared with, and a text column can be compared only with texts.

May import `values` and `support`. Must not read or write anything.
"""

from typing import TypeAlias

from queue_core.selector.by_function import Function, FunctionSelector, Predicate
from queue_core.selector.none_of import NoneOf
from queue_core.selector.order import Order
from queue_core.selector.predicate import Selector

#: What all kinds of conditions are.
Condition: TypeAlias = Selector | FunctionSelector | NoneOf

__all__ = [
    "Condition",
    "Function",
    "FunctionSelector",
    "NoneOf",
    "Order",
    "Predicate",
    "Selector",
]
