"""Selection: which waiting messages a selector lets through, and which an order puts first.

Reads the few columns that are asked about, of the slices that statistics do not rule out, outside
of any transaction. Changes nothing: what it finds is a set of ids, which a firing then takes as far
as they are still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import readings
from queue_core.ids import IdSet
from queue_core.model import QueueInfo, Reading, Slice
from queue_core.plan import Taken
from queue_core.reading import output_schema, read_table
from queue_core.stats import stats_from_json

if TYPE_CHECKING:
    from queue_core.selector import Order, Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selector, an order, or both, over the columns of some queues of one schema."""

    queues: tuple[QueueInfo, ...]
    #: The storage's URI.
    storage: str
    selector: Selector | None
    order: Order | None

    @staticmethod
    def parse(
        queues: Sequence[QueueInfo], storage: str, selector: str | None, order_by: str | None
    ) -> Selection | None:
        """None when neither is given; raises `BadSelector`."""
        if selector is None and order_by is None:
            return None
        # Not at the top: a SQL parser takes long to import, and few queries have a selector.
        from queue_core.selector import Order, Selector

        schema = output_schema(queues[0].schema)
        return Selection(
            queues=tuple(queues),
            storage=storage,
            selector=None if selector is None else Selector.parse(selector, schema),
            order=None if order_by is None else Order.parse(order_by, schema),
        )

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows in the order that is asked for, else as they are."""
        return rows if self.order is None else rows.take(self.order.indices(rows))


def reading(connection: Connection, waiting: Iterable[Taken], wanted: Selection) -> Reading:
    """How to read those rows of slices in which something may be eligible."""
    rows = [taken for taken in waiting if _may_match(taken[0], wanted)]
    return readings.build(connection, wanted.queues, rows, wanted.storage)


def select(reading: Reading, wanted: Selection, limit: int | None) -> IdSet:
    """
    The ids of the eligible ones among messages.

    With an order, the first *limit* of them. Raises `DamagedSegment`.
    """
    columns = {"_message_id"}
    columns |= wanted.selector.columns if wanted.selector else set()
    columns |= wanted.order.columns if wanted.order else set()
    found = read_table(reading, sorted(columns))
    if wanted.selector is not None:
        found = found.filter(wanted.selector.mask(found))
    if wanted.order is not None and limit is not None:
        found = found.take(wanted.order.top(found, limit))
    return IdSet.of(found.column("_message_id"))


def _may_match(piece: Slice, wanted: Selection) -> bool:
    if wanted.selector is None or piece.stats is None:
        return True
    stats = stats_from_json(piece.stats, wanted.queues[0].schema)
    return wanted.selector.may_match(stats)
