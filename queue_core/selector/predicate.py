"""`Selector`: a condition over columns that selects messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.selector import prune
from queue_core.selector.columns import touched, work_out
from queue_core.selector.functions import truth
from queue_core.selector.grammar import understand
from queue_core.selector.nodes import Literal, Node, Unfit
from queue_core.selector.syntax import SourceText
from queue_core.values.column_stats import ColumnStats
from queue_core.values.schema import output_schema

#: What a message has only in a queue, or what may differ when it is fired again.
_OF_FIRINGS = {"_attempt", "_fired_at"}


@dataclass(frozen=True)
class Selector:
    """
    A condition in SQL over the columns of a queue.

    It is compared, hashed and pickled by its text and columns, and parsed again when unpickled.
    """

    #: Equal columns always have an equal result.
    repeatable: ClassVar[bool] = True
    text: str
    #: The columns that it uses, with the queue's types.
    schema: pa.Schema
    _root: Node = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, schema: pa.Schema) -> Selector:
        """
        Parse a condition such as ``priority > 5 AND kind IN ('a', 'b')``.

        Raises `BadSelector`, which shows the fault and its position.
        """
        source = SourceText.of("selector", text)
        root, names = understand(source.tree(), source, schema)
        try:
            root = truth(root)
        except Unfit as error:
            raise source.fault(str(error), *source.span()) from error
        return cls(text, touched(names, schema), root)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that the condition uses, which `mask` reads."""
        return frozenset(self.schema.names)

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """
        Return true for each row that meets the condition, and false if it is false or NULL.

        A column that the rows lack is NULL. Raises `BadSelector` if Arrow cannot evaluate it.
        """
        if isinstance(self._root, Literal):
            return pa.repeat(pa.scalar(self._root.value.as_py() is True), rows.num_rows)
        (found,) = work_out([self._root], rows, self.schema, self.text)
        return pc.fill_null(found, False).combine_chunks()

    def may_match(self, stats: Mapping[str, ColumnStats]) -> bool:
        """Return whether a row can match, given statistics of all rows; only false is certain."""
        return prune.outcomes(self._root, stats).true

    def must_match(self, stats: Mapping[str, ColumnStats]) -> bool:
        """Return whether every row matches, given statistics of all rows; only true is certain."""
        return prune.outcomes(self._root, stats).certain

    def __reduce__(self) -> tuple[Callable[..., Selector], tuple[str, pa.Schema]]:
        return Selector.parse, (self.text, self.schema)


@lru_cache(maxsize=256)
def parsed_of_log(text: str, schema: pa.Schema) -> Selector:
    """Return the condition of a subscription, over what a message has in its log, as `parse`."""
    visible = [field for field in output_schema(schema) if field.name not in _OF_FIRINGS]
    return Selector.parse(text, pa.schema(visible))
