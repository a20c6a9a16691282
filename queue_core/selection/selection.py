"""Selection: which waiting messages may be taken, and which of them come first.

What a consumer asks for and what the settings of the queues say, together: conditions, of which all
must hold, and an order, in which the consumer's own comes before the queue's. Reads and changes
nothing; `pick` looks for the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from queue_core.model import Magazine, QueueInfo
from queue_core.schema import AGE, NOW
from queue_core.segments.reader import output_schema
from queue_core.selection.queue_rules import Eligibility, of_firing
from queue_core.selection.scan import with_moment

if TYPE_CHECKING:
    from queue_core.selector import Order, Selector


@dataclass(frozen=True, slots=True)
class Own:
    """What holds for the messages of one queue."""

    #: What the queue's settings say.
    condition: Selector | None
    #: The consumer's order and then the queue's; then the oldest comes first.
    order: Order | None
    group: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Conditions, an order, or both, over the columns of some queues of one schema."""

    queues: tuple[QueueInfo, ...]
    #: The storage's URI; not shown, as it may have credentials.
    storage: str = field(repr=False)
    #: What the consumer asks for.
    selector: Selector | None
    #: Whether the oldest is taken when nothing is what the consumer asks for.
    fallback: bool
    own: Mapping[int, Own]

    @staticmethod
    def parse(
        queues: Sequence[QueueInfo],
        storage: str,
        selector: str | None = None,
        order_by: str | None = None,
        *,
        fallback: bool = False,
        eligibility: Callable[[QueueInfo], Eligibility] | None = None,
    ) -> Selection | None:
        """
        None when all may be taken, in order of loading; raises `BadSelector`.

        *eligibility* is what the settings of a queue say: of a firing from main unless given.
        """
        of = eligibility or (lambda queue: of_firing(queue, Magazine.MAIN))
        rules = {queue.id: of(queue) for queue in queues}
        if selector is None and order_by is None and not any(rules.values()):
            return None
        schema = queues[0].schema
        return Selection(
            queues=tuple(queues),
            storage=storage,
            selector=None if selector is None else _condition(selector, schema),
            fallback=fallback and selector is not None,
            own={id: _own(rule, order_by, schema) for id, rule in rules.items()},
        )

    def without_selector(self) -> Selection:
        """Whatever the consumer asks for."""
        return replace(self, selector=None, fallback=False)

    @property
    def ordered(self) -> bool:
        """Whether there is another order than that of loading."""
        return any(own.order is not None for own in self.own.values())

    def sorted(self, rows: pa.Table, now: int) -> pa.Table:
        """Rows of the one queue in the order that is asked for at a moment, else as they are."""
        (own,) = self.own.values()
        if own.order is None:
            return rows
        return rows.take(own.order.indices(with_moment(rows, own.order.columns, now)))


def _own(rule: Eligibility, order_by: str | None, schema: pa.Schema) -> Own:
    if order_by is not None:
        # By itself, so that a fault in it is shown in the user's own words.
        _order(order_by, schema)
    whole = ", ".join(text for text in (order_by, rule.order) if text)
    return Own(
        condition=_queues_own(rule.condition, schema) if rule.condition else None,
        order=_order(whole, schema) if whole else None,
        group=rule.group,
    )


# Asked again for each firing, of the same few texts.
@lru_cache(maxsize=256)
def _condition(text: str, schema: pa.Schema) -> Selector:
    # Not at the top: a SQL parser takes long to import, and few queries have a selector.
    from queue_core.selector import Selector

    return Selector.parse(text, visible(schema))


@lru_cache(maxsize=256)
def _queues_own(text: str, schema: pa.Schema) -> Selector:
    from queue_core.selector import Selector

    moment = pa.field(NOW, pa.timestamp("us"), nullable=False)
    return Selector.parse(text, pa.schema([*visible(schema), moment]))


@lru_cache(maxsize=256)
def _order(text: str, schema: pa.Schema) -> Order:
    from queue_core.selector import Order

    return Order.parse(text, visible(schema))


def visible(schema: pa.Schema) -> pa.Schema:
    """The columns that a consumer may ask about: the queue's, those of messages, and the age."""
    return pa.schema([*output_schema(schema), pa.field(AGE, pa.float64(), nullable=False)])
