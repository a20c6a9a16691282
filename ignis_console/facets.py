"""The columns of a group of failed messages: the values of a sample, each with its selector.

A sample is of few segments and of at most `SAMPLE` messages, so that a group of millions costs no
more than a small one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from queue_core.errors import BadSelector, DamagedSegment
from queue_core.queue.queue import Queue
from queue_core.selection.queue_rules import quoted
from queue_core.selection.selection import condition_of
from queue_core.values.arrow_types import is_number, is_text
from queue_core.values.model import ROW_BITS
from queue_core.values.rows import Numbers
from queue_core.values.valid_text import readable

#: The most messages of a sample, and the most segments with which these were loaded.
SAMPLE = 1000
SEGMENTS = 32
#: The most columns that are shown, and the most values of each.
COLUMNS = 4
VALUES = 4
#: A value of a smaller part of the sample is not shown, nor a longer text.
_LEAST_SHARE = 0.02
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value that many messages have."""

    value: Any
    #: The part of the sample that has it, from 0 to 1.
    share: float
    #: The SQL condition for it.
    selector: str


@dataclass(frozen=True, slots=True)
class Facet:
    """The most frequent values of a column."""

    column: str
    values: tuple[FacetValue, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sample of a group says about its messages."""

    #: How many messages it has.
    size: int
    facets: tuple[Facet, ...]
    #: The columns that are shown, and their values by message id.
    columns: tuple[str, ...]
    rows: Mapping[int, tuple[Any, ...]]


def sample(queue: Queue, members: Numbers, shown: Numbers) -> Sample:
    """Return a sample of a group, and the columns of the messages that a page shows."""
    chosen = chosen_of(members)
    try:
        some = queue.choose(np.union1d(chosen, shown), magazine="sideline")
        found = readable(some.rows())
    except DamagedSegment:
        # The messages are quarantined now, and no longer in the group when the page is read again.
        return Sample(0, (), (), {})
    ids = found.column("_message_id").to_numpy()
    of_sample = found.filter(pa.array(np.isin(ids, chosen)))
    facets = [facet(of_sample.column(each.name), each, queue.schema) for each in queue.schema]
    many = sorted((each for each in facets if each.values), key=lambda each: len(each.values) < 2)
    names = [each.column for each in many]
    # Payloads come last.
    others = sorted(queue.schema, key=lambda each: not _is_plain(each.type))
    names += [each.name for each in others if each.name not in names]
    columns = tuple(names[:COLUMNS])
    of_page = found.filter(pa.array(np.isin(ids, shown)))
    values = zip(*(of_page.column(name).to_pylist() for name in columns), strict=True)
    rows = dict(zip(of_page.column("_message_id").to_pylist(), values, strict=True))
    return Sample(of_sample.num_rows, tuple(many[:COLUMNS]), columns, rows)


def chosen_of(members: Numbers) -> Numbers:
    """Return the ids of a sample: some segments from the first to the last, and rows of each."""
    segments = np.unique(members >> ROW_BITS)
    return _spread(members[np.isin(members >> ROW_BITS, _spread(segments, SEGMENTS))], SAMPLE)


def facet(values: pa.ChunkedArray, field: pa.Field, schema: pa.Schema) -> Facet:
    """Return the values that many messages have; none: each has another one."""
    if not _is_plain(field.type) or not len(values):
        return Facet(field.name, ())
    counted = pa.table({"value": values}).group_by("value").aggregate([([], "count_all")])
    most = counted.sort_by([("count_all", "descending"), ("value", "ascending")])
    least = max(2, _LEAST_SHARE * len(values)) if len(values) > 1 else 1
    found = [
        FacetValue(each["value"], each["count_all"] / len(values), text)
        for each in most.slice(0, VALUES).to_pylist()
        if each["count_all"] >= least
        and len(str(each["value"])) <= _LONGEST
        and (text := selector(field.name, each["value"], schema)) is not None
    ]
    return Facet(field.name, tuple(found))


def selector(column: str, value: Any, schema: pa.Schema) -> str | None:
    """Return the condition that a column has a value; None: SQL cannot say it."""
    name = column if column.isidentifier() else quoted(column)
    if value is None:
        text = f"{name} IS NULL"
    elif isinstance(value, bool | int | float):
        text = f"{name} = {str(value).lower()}"
    else:
        inside = str(value).replace("\\", "\\\\").replace("'", "''")
        text = f"{name} = '{inside}'"
    try:
        condition_of(text, schema)
    except BadSelector:
        return None
    return text


def _spread(values: Numbers, most: int) -> Numbers:
    """Return at most so many values, at equal distances."""
    if len(values) <= most:
        return values
    spread: Numbers = values[np.linspace(0, len(values) - 1, most).astype(int)]
    return spread


def _is_plain(type_: pa.DataType) -> bool:
    """Return whether a type has short values that repeat."""
    return is_text(type_) or is_number(type_) or pt.is_boolean(type_) or pt.is_date(type_)
