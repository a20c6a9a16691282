"""Output: the rows that a handler returns for another queue, and the messages to which they belong.

The rows of a message count only if it is deleted. So one that fails, or is put off, gives none, and
its next call gives them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOutcome, IgnisError, SchemaMismatch
from queue_core.handling.objects.fields import is_message_class
from queue_core.handling.objects.message_class import as_table
from queue_core.handling.verdicts import Verdicts, of_error
from queue_core.values.ipc import pack
from queue_core.values.model import QueueInfo
from queue_core.values.retry import Retry
from queue_core.values.rows import Numbers
from queue_core.values.schema import conform, of_data_frame

#: A column of a task's settlement: the rows for the output queue, in its first row.
OUTPUT = "_output"
#: What the first part of a pair may be. An exception is refused later: it must be raised.
_OUTCOMES = (bool, np.bool_, str, BaseException)


class Given(NamedTuple):
    """Rows as a handler has returned them."""

    #: The number of the message of each row.
    numbers: Numbers
    rows: pa.Table | list[Any]


class OutputRows(NamedTuple):
    """Rows with the columns of the output queue."""

    #: The number of the message of each row.
    numbers: Numbers
    rows: pa.Table

    @staticmethod
    def joined(parts: Iterable[tuple[OutputRows | None, int]]) -> OutputRows | None:
        """Return the rows of settlements, each with its length, as those of one; None without."""
        numbers, rows, first = [], [], 0
        for part, length in parts:
            if part is not None and len(part.numbers):
                numbers.append(part.numbers + first)
                rows.append(part.rows)
            first += length
        if not rows:
            return None
        if len(rows) == 1:
            return OutputRows(numbers[0], rows[0])
        # Columns that were added meanwhile are null in rows that were made before.
        table = pa.concat_tables(rows, promote_options="default")
        return OutputRows(np.concatenate(numbers), table)


class Fitted(NamedTuple):
    """The rows of a batch as the output queue takes them."""

    rows: OutputRows | None = None
    #: Why rows of messages do not fit the queue, by the number of the message.
    failures: Mapping[int, Exception] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Output:
    """The queue for the rows, as it is known. It can be sent to other processes."""

    queue: QueueInfo

    def of_message(self, result: Any) -> tuple[Any, Any]:
        """Return the decision about a message and its rows, if any; raises `SchemaMismatch`."""
        if type(result) is dict:
            # The result of most handlers; it is not looked at any further.
            return True, [result]
        if result is None or isinstance(result, bool | np.bool_ | BaseException):
            return result, None
        if _is_pair(result) and (result[0] is None or isinstance(result[0], _OUTCOMES)):
            return result[0], self._listed(result[1])
        return True, self._listed(result)

    def of_batch(self, result: Any, count: int, ids: pa.Array | None) -> tuple[Any, list[Given]]:
        """
        Return the outcomes of *count* messages as a batch handler gives them, and the rows.

        Raises `BadOutcome` if the messages of the rows are not known, and `SchemaMismatch`.
        """
        if _is_pair(result) and not all(_decides(each) for each in result):
            outcomes, rows = result
            if isinstance(outcomes, bool | np.bool_ | str):
                outcomes = [outcomes] * count
            return outcomes, self._by_message(rows, count, ids)
        if _is_table(result):
            return pa.repeat(True, count), self._by_message(result, count, ids)
        if isinstance(result, list | tuple) and not all(map(_decides, result)):
            self._check_count(len(result), count)
            split = [self.of_message(each) for each in result]
            return [decision for decision, _ in split], joined(list(enumerate(r for _, r in split)))
        return result, []

    def conformed(self, rows: pa.Table | list[Any]) -> pa.Table:
        """Return rows with the columns of the queue; raises `SchemaMismatch`."""
        name, key = self.queue.name, self.queue.key
        objects = as_table(rows, name) if isinstance(rows, list) else None
        table = conform(rows if objects is None else objects, self.queue.schema, name)
        if key is not None and table.column(key).null_count:
            raise SchemaMismatch(f"queue {name!r}: key column {key!r} is null")
        return table

    def _by_message(self, rows: Any, count: int, ids: pa.Array | None) -> list[Given]:
        listed = self._listed(rows)
        # A table that is made of an empty list has no columns.
        if not (listed.column_names if isinstance(listed, pa.Table) else listed):
            return []
        if isinstance(listed, list):
            self._check_count(len(listed), count)
            return joined([(n, self._listed(each)) for n, each in enumerate(listed)])
        if ids is None or "_message_id" not in listed.column_names:
            self._check_count(listed.num_rows, count)
            return [Given(np.arange(count), listed)]
        given = listed.column("_message_id").cast(pa.int64())
        numbers = pc.index_in(given, value_set=ids)
        if numbers.null_count:
            strange = given.filter(numbers.is_null())[0]
            raise BadOutcome(
                f"a row for queue {self.queue.name!r} is of message {strange}, which is not in the "
                "batch"
            )
        return [Given(numbers.to_numpy().astype(np.int64), listed)]

    def _listed(self, rows: Any) -> Any:
        """Return rows as a table or a list; None for none."""
        if rows is None or isinstance(rows, pa.Table | list):
            return rows
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        if _is_table(rows):
            return of_data_frame(rows, self.queue.name)
        if isinstance(rows, Mapping) or is_message_class(type(rows)):
            return [rows]
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
            raise SchemaMismatch(
                f"queue {self.queue.name!r}: the handler returned {type(rows).__name__}; return a "
                "row as a dict or an object, rows as a list or a table, or (outcome, rows)"
            )
        return list(rows)

    def _check_count(self, rows: int, count: int) -> None:
        if rows != count:
            raise BadOutcome(
                f"the batch handler gave {rows} rows for queue {self.queue.name!r} and {count} "
                "messages; give one for each message, in their order, or a table that names the "
                "message of each row in a column _message_id"
            )


def joined(by_message: Sequence[tuple[int, Any]]) -> list[Given]:
    """Return the rows of single messages, those of lists together."""
    found, rows, numbers = [], [], []
    for number, each in by_message:
        if isinstance(each, pa.Table):
            found.append(Given(np.full(each.num_rows, number), each))
        elif each:
            rows += each
            numbers += [number] * len(each)
    return [Given(np.array(numbers, np.int64), rows), *found] if rows else found


def fitted(given: Sequence[Given], conformed: Callable[[Any], pa.Table]) -> Fitted:
    """Return the rows of deleted messages with the columns of the queue."""
    found: list[OutputRows | None] = []
    failures: dict[int, Exception] = {}
    for each in given:
        try:
            found.append(OutputRows(each.numbers, conformed(each.rows)))
        except (IgnisError, pa.ArrowException) as error:
            messages = np.unique(each.numbers)
            if len(messages) == 1:
                failures[int(messages[0])] = error
                continue
            # One message after the other, to find those that are the reason.
            alone = fitted([only(each, each.numbers == one) for one in messages], conformed)
            failures |= alone.failures
            found.append(alone.rows)
    return Fitted(OutputRows.joined((rows, 0) for rows in found), failures)


def failed(
    settlement: pa.Table, failures: Mapping[int, Exception], retry: Retry | None
) -> pa.Table:
    """
    Return a settlement in which some rows, by their numbers, are failures of the handler.

    The policy *retry* says which of them are tried again.
    """
    if not failures:
        return settlement
    numbers = np.array(sorted(failures))
    made = Verdicts.of([of_error(failures[number], (), retry) for number in numbers.tolist()])
    ids = settlement.column("_message_id").take(numbers).combine_chunks()
    failing = pa.table([ids, *made.columns], schema=settlement.schema)
    others = np.setdiff1d(np.arange(settlement.num_rows), numbers)
    order = np.argsort(np.concatenate([others, numbers]))
    return pa.concat_tables([settlement.take(others), failing]).take(order)


def only(given: Given, wanted: npt.NDArray[np.bool_]) -> Given:
    """Return only some of the rows."""
    if wanted.all():
        return given
    numbers, rows = given
    if isinstance(rows, pa.Table):
        return Given(numbers[wanted], rows.filter(pa.array(wanted)))
    return Given(numbers[wanted], [rows[at] for at in np.flatnonzero(wanted)])


def packed(rows: OutputRows, ids: pa.Array) -> bytes:
    """Return rows with the ids of their messages, in a column ``_message_id``, for `unpack`."""
    return pack(rows.rows.append_column("_message_id", ids.take(pa.array(rows.numbers))))


def _is_pair(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2


def _is_table(result: Any) -> bool:
    if isinstance(result, pa.Table | pa.RecordBatch):
        return True
    # A series of Polars or pandas has no columns.
    return hasattr(result, "__arrow_c_stream__") and hasattr(result, "columns")


def _decides(each: Any) -> bool:
    return each is None or isinstance(each, bool | np.bool_)
