"""Selection: the waiting messages that may be taken, and their order.

It combines the consumer's selector and order with the rules of the queues: all conditions must
hold, and the consumer's order comes before the queue's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from queue_core.errors import BadOption
from queue_core.selection.queue_rules import Eligibility
from queue_core.values.limits import Limit
from queue_core.values.model import BY_SHARD, GLOBAL, QueueInfo
from queue_core.values.schema import AGE, NOW, output_schema

if TYPE_CHECKING:
    from queue_core.selector import Condition, Function, NoneOf, Order, Predicate, Selector

#: A condition on messages: SQL, or a function of their columns.
AnySelector: TypeAlias = "str | Predicate | Function"


class QueueRules(NamedTuple):
    """The condition, the order and the grouping for messages of one queue."""

    #: The condition of the queue's settings.
    condition: Selector | None
    #: The consumer's order, then the queue's. Among equals, the oldest comes first.
    order: Order | None
    group: str | None
    #: Whether the shards are merged by the time of loading (`merging`); not with an order.
    merged: bool = False
    #: The limits of values of columns.
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Conditions, an order, or both, over the columns of some queues of one schema."""

    #: The consumer's condition.
    selector: Condition | None
    #: Whether to take the oldest message if none matches the selector.
    fallback: bool
    #: By the queue's id.
    rules: Mapping[int, QueueRules]
    #: What is left for later firings, whether it matches the selector or not.
    left_out: NoneOf | None = None

    @staticmethod
    def parse(
        queues: Sequence[QueueInfo],
        selector: AnySelector | None = None,
        order_by: str | None = None,
        *,
        eligibility: Callable[[QueueInfo], Eligibility],
        order: str = BY_SHARD,
        fallback: bool = False,
        left_out: NoneOf | None = None,
    ) -> Selection | None:
        """
        Return None if any message may be taken, in order of loading.

        Raises `BadSelector`, or `BadOption` if *order* is unknown or set together with *order_by*.
        *eligibility* returns the rules of a queue's settings.
        """
        eligible = {queue.id: eligibility(queue) for queue in queues}
        _check_order(order, order_by)
        # One shard alone is in order anyway.
        across = order == GLOBAL and (len(queues) > 1 or queues[0].shards > 1)
        is_plain = selector is None and order_by is None and not across and left_out is None
        if is_plain and not any(eligible.values()):
            return None
        # A column may have been added to one of them alone.
        schema = max((queue.schema for queue in queues), key=len)
        return Selection(
            selector=None if selector is None else condition_of(selector, schema),
            fallback=fallback and selector is not None,
            rules={id: _rules(one, order_by, across, schema) for id, one in eligible.items()},
            left_out=left_out,
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of the consumer."""
        return tuple(each for each in (self.selector, self.left_out) if each is not None)

    @property
    def merged(self) -> bool:
        """Whether shards are merged by the time of loading."""
        return any(rules.merged for rules in self.rules.values())

    def sorted(self, rows: pa.Table, now: int) -> pa.Table:
        """Sort rows of the selection's only queue by its order at a moment, if there is one."""
        (rules,) = self.rules.values()
        # Not at the top: most firings evaluate no columns, and a query waits for imports.
        if rules.merged:
            from queue_core.selection.merging import merge_rows

            return merge_rows(rows)
        if rules.order is None:
            return rows
        from queue_core.selection.merging import taken
        from queue_core.selection.scan import with_moment

        order = rules.order.indices(with_moment(rows, rules.order.columns, now))
        return taken(rows, order.to_numpy())


def _check_order(order: str, order_by: str | None) -> None:
    if order not in (BY_SHARD, GLOBAL):
        raise BadOption(f"order={order!r}: use {BY_SHARD!r} or {GLOBAL!r}")
    if order == GLOBAL and order_by is not None:
        raise BadOption(
            f"order={GLOBAL!r} cannot be combined with an order by columns ({order_by!r}), which "
            "already spans all shards; set one of them"
        )


def _rules(
    eligibility: Eligibility, order_by: str | None, across: bool, schema: pa.Schema
) -> QueueRules:
    if order_by is not None:
        # Parsed alone first, so that an error shows the user's own text.
        _order(order_by, schema)
    by_time = "_loaded_at, _message_id" if across and eligibility.order else None
    order = ", ".join(text for text in (order_by, eligibility.order, by_time) if text)
    condition = eligibility.condition
    return QueueRules(
        condition=_settings_condition(condition, schema) if condition else None,
        order=_order(order, schema) if order else None,
        group=eligibility.group,
        merged=across and not order,
        limits=eligibility.limits,
    )


def condition_of(selector: AnySelector, schema: pa.Schema) -> Condition:
    """Return the condition over a queue's columns; raises `BadSelector`."""
    if isinstance(selector, str):
        return _condition(selector, schema)
    from queue_core.selector import FunctionSelector

    return FunctionSelector.of(selector, visible(schema))


# Each firing parses the same few texts.
@lru_cache(maxsize=256)
def _condition(text: str, schema: pa.Schema) -> Selector:
    # Not at the top: a SQL parser takes long to import, and few queries have a selector.
    from queue_core.selector import Selector

    return Selector.parse(text, visible(schema))


@lru_cache(maxsize=256)
def _settings_condition(text: str, schema: pa.Schema) -> Selector:
    from queue_core.selector import Selector

    moment = pa.field(NOW, pa.timestamp("us"), nullable=False)
    return Selector.parse(text, pa.schema([*visible(schema), moment]))


@lru_cache(maxsize=256)
def _order(text: str, schema: pa.Schema) -> Order:
    from queue_core.selector import Order

    return Order.parse(text, visible(schema))


def visible(schema: pa.Schema) -> pa.Schema:
    """Return the columns that a consumer may name: the queue's, the metadata and the age."""
    return pa.schema([*output_schema(schema), pa.field(AGE, pa.float64(), nullable=False)])
