"""Which messages are eligible, and in which order: one mechanism for every rule.

A `Selector` is a condition over columns, an `Order` the order among the messages that meet it. Both
come from users as SQL, are understood once, and are then worked out on Arrow columns, or held
against statistics, so that slices in which nothing can match are never opened. They see the columns
that they are given and nothing else: no file, no network, no clock.

    text -> `syntax` -> `grammar` (with `functions`, `arithmetic`, `casts`) -> `nodes`
    nodes -> `predicate`, `order` (on rows), `prune` (on statistics)

Values are read as in Spark, with these differences: what Spark lets wrap around or fail is NULL, a
moment without a zone is in UTC, a text that is compared with something else is read once, when the
selector is, and a text column is compared with texts only.
"""

from queue_core.column_stats import ColumnStats, column_stats, stats_from_json, stats_to_json
from queue_core.selector.order import Order, SortKey
from queue_core.selector.predicate import Selector

__all__ = [
    "ColumnStats",
    "Order",
    "SortKey",
    "Selector",
    "column_stats",
    "stats_from_json",
    "stats_to_json",
]
