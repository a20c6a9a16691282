"""The answers of a user's own check: decisions about pairs, and new values of queued messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOption, SchemaMismatch
from queue_core.policies.decisions import Decision
from queue_core.values.names import nearest
from queue_core.values.rows import Numbers
from queue_core.values.schema import conform

#: The columns of a table of answers.
DECISION, VALUES = "decision", "values"

#: A user's own answers, and what they mean.
Indicators: TypeAlias = Mapping[Any, Decision]

DECISIONS = list(Decision)
CODES = {decision.value: code for code, decision in enumerate(Decision)}


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers about some pairs of messages."""

    #: The number of each pair's decision, in the order of `Decision`.
    decisions: Numbers
    #: The pairs whose queued message gets other values, and these values, column by column.
    pairs: Numbers
    values: pa.Table


def answers_of(
    found: Any, count: int, schema: pa.Schema, key: str | None, indicators: Indicators
) -> Answers:
    """Check the answers about *count* pairs; raises `BadOption` or `SchemaMismatch`."""
    values = None
    if isinstance(found, pa.Table | pa.RecordBatch):
        names = found.schema.names
        if DECISION not in names or not {DECISION, VALUES}.issuperset(names):
            raise BadOption(
                f"policy: a table of answers has the columns {DECISION!r} and, for new values, "
                f"{VALUES!r}; this one has {', '.join(names) or 'none'}"
            )
        values = found.column(VALUES) if VALUES in names else None
        found = found.column(DECISION)
    decisions = _coded(found, count, indicators)
    if values is None or values.null_count == count:
        return Answers(decisions, np.empty(0, np.int64), schema.empty_table().select([]))
    pairs = np.flatnonzero(pc.is_valid(values).to_numpy(zero_copy_only=False))
    return Answers(decisions, pairs, _fitting(values.take(pa.array(pairs)), schema, key))


def answers_one_by_one(
    found: Sequence[Any],
    queued: Sequence[Mapping[str, Any]],
    schema: pa.Schema,
    key: str | None,
    indicators: Indicators,
) -> Answers:
    """Check the answers about single pairs, with their queued messages; raises as `answers_of`."""
    decisions = np.empty(len(found), np.int64)
    pairs, values = [], []
    for number, answer in enumerate(found):
        is_pair = isinstance(answer, tuple) and len(answer) == 2
        decision, change = answer if is_pair else (answer, None)
        decisions[number] = _code(decision, indicators)
        if change:
            pairs.append(number)
            values.append(change)
    names = list(dict.fromkeys(name for change in values for name in change))
    _check_names(names, schema, key)
    # A message keeps its own values in columns that only other messages change.
    rows = [
        {name: change.get(name, queued[number][name]) for name in names}
        for number, change in zip(pairs, values, strict=True)
    ]
    table = _conformed(rows, schema, names) if rows else schema.empty_table().select([])
    return Answers(decisions, np.array(pairs, np.int64), table)


def _fitting(values: Any, schema: pa.Schema, key: str | None) -> pa.Table:
    if not pa.types.is_struct(values.type):
        raise BadOption(f"policy: the column {VALUES!r} of a check must be a struct of columns")
    names = [field.name for field in values.type]
    _check_names(names, schema, key)
    return _conformed(pa.table(values.flatten(), names=names), schema, names)


def _conformed(rows: Any, schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    try:
        return conform(rows, pa.schema([schema.field(name) for name in names]), "")
    except SchemaMismatch as error:
        reason = str(error).removeprefix("queue '': ")
        raise SchemaMismatch(f"policy: new values of a queued message: {reason}") from error


def _check_names(names: Sequence[str], schema: pa.Schema, key: str | None) -> None:
    for name in names:
        if name not in schema.names:
            raise BadOption(
                f"policy: a check gives a value for {name!r}, and the queue has no such column"
                f"{nearest(str(name), schema.names)}"
            )
        if name == key:
            raise BadOption(
                f"policy: a check cannot change the key {name!r} of a queued message, because the "
                "message would belong to another shard"
            )


def _coded(answers: Any, count: int, indicators: Indicators) -> Numbers:
    if not isinstance(answers, pa.Array | pa.ChunkedArray) or len(answers) != count:
        raise BadOption(
            f"policy: a check must return an Arrow array of decisions, {count} for {count} pairs; "
            f"or a table of them, with the columns {DECISION!r} and {VALUES!r}"
        )
    known = CODES | {str(own): CODES[Decision(meant)] for own, meant in indicators.items()}
    found = pc.index_in(answers.cast(pa.string()), value_set=pa.array([*known]))
    if found.null_count:
        strange = answers.filter(pc.is_null(found))[0].as_py()
        raise BadOption(f"policy: {strange!r} is not a decision; use {', '.join(known)}")
    meant = np.array([*known.values()], np.int64)
    numbers: Numbers = meant[np.asarray(found).astype(np.int64)]
    return numbers


def _code(answer: Any, indicators: Indicators) -> int:
    try:
        return CODES[indicators.get(answer, answer)]
    except (KeyError, TypeError):
        known = [*CODES, *map(str, indicators)]
        if answer is None:
            raise BadOption(
                "policy: the check returned nothing; where two messages are unrelated, return "
                "Decision.DONT_CARE"
            ) from None
        raise BadOption(
            f"policy: {answer!r} is not a decision{nearest(str(answer), known)}; use "
            f"{', '.join(known)}"
        ) from None
