"""Parse the text of a policy, as in a setting or an option: ``merge(sum(amount), last(state))``.

The text comes from users. It is tokenized as selectors are, and can name only columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import Token, TokenType

from queue_core.errors import BadOption, BadSelector
from queue_core.policies.aggregates import Take
from queue_core.policies.builtin import (
    Annihilate,
    Confirm,
    DropDuplicates,
    Latest,
    Merge,
    MergeAdjacent,
    Policy,
)
from queue_core.policies.decisions import NEWEST, ORDERS
from queue_core.selector.functions import truth
from queue_core.selector.grammar import understand
from queue_core.selector.nodes import Unfit
from queue_core.selector.syntax import SourceText
from queue_core.values.names import nearest


def parse(text: str, schema: pa.Schema, key: str | None) -> Policy:
    """Return the policy of a text; raises `BadOption`, which shows the fault and its position."""
    if not text.strip():
        raise BadOption(f"the policy is empty; use {', '.join(MAKERS)}, or none")
    if ":" in text and "(" not in text:
        raise BadOption(
            f"policy {text!r} is not an import path: write module:name, such as shop.policies:check"
        )
    try:
        source = SourceText.of("policy", text)
        name, arguments = _call(source)
        form = MAKERS.get(name.text.lower())
        if form is None:
            hint = nearest(name.text.lower(), MAKERS)
            message = f"policy {name.text!r} is unknown{hint}; use {', '.join(MAKERS)}"
            raise source.fault(message, name.start, name.end)
        order, rest = _order(arguments)
        try:
            if order is not None and not form.has_order:
                raise source.fault("this policy has a fixed order; remove order", *source.span())
            orders = [order or NEWEST] if form.has_order else []
            policy = form.make(*form.read(source, rest, schema), *orders)
            policy.bind(schema, key)
        except BadOption as error:
            raise source.fault(str(error), *source.span()) from error
    except BadSelector as error:
        raise BadOption(str(error)) from error
    return policy


class _Form(NamedTuple):
    """How the text of a policy is written."""

    make: Callable[..., Policy]
    #: Returns the values for *make* from the arguments in the text.
    read: Callable[[SourceText, Sequence[SourceText], pa.Schema], Sequence[Any]]
    #: Whether the text may say in which order queued messages are asked.
    has_order: bool = True


def _columns(
    _: SourceText, arguments: Sequence[SourceText], schema: pa.Schema
) -> Sequence[tuple[str, ...]]:
    return [tuple(_column(argument, schema) for argument in arguments)]


def _takes(
    _: SourceText, arguments: Sequence[SourceText], schema: pa.Schema
) -> Sequence[tuple[Take, ...]]:
    return [tuple(_take(argument, schema) for argument in arguments)]


def _conditions(
    count: int, source: SourceText, arguments: Sequence[SourceText], schema: pa.Schema
) -> Sequence[str]:
    if len(arguments) != count:
        message = f"{count or 'no'} arguments are expected, not {len(arguments)}"
        raise source.fault(message, *source.span())
    return [_condition(argument, schema) for argument in arguments]


#: The policies by their names.
MAKERS = {
    "latest": _Form(Latest, partial(_conditions, 0)),
    "drop_duplicates": _Form(DropDuplicates, _columns),
    "merge": _Form(Merge, _takes),
    "merge_adjacent": _Form(MergeAdjacent, _takes, has_order=False),
    "annihilate": _Form(Annihilate, partial(_conditions, 2)),
    "confirm": _Form(Confirm, partial(_conditions, 1), has_order=False),
}


def _call(source: SourceText) -> tuple[Token, list[SourceText]]:
    """Return the name of a call and its arguments."""
    name, *rest = source.tokens
    if not rest:
        return name, []
    last = rest[-1]
    if rest[0].token_type != TokenType.L_PAREN:
        raise source.fault("a '(' is expected here", rest[0].start, rest[0].end)
    if last.token_type != TokenType.R_PAREN or len(rest) < 2:
        raise source.fault("a ')' is expected at the end", last.start, last.end)
    return name, list(replace(source, tokens=rest[1:-1]).parts()) if rest[1:-1] else []


def _order(arguments: Sequence[SourceText]) -> tuple[str | None, list[SourceText]]:
    order, rest = None, []
    for argument in arguments:
        first, *others = argument.tokens
        if others and others[0].token_type == TokenType.FARROW:
            if first.text.lower() != "order" or len(others) != 2 or others[1].text not in ORDERS:
                message = "only order => newest or order => oldest is allowed here"
                raise argument.fault(message, *argument.span())
            order = others[1].text
        else:
            rest.append(argument)
    return order, rest


def _take(argument: SourceText, schema: pa.Schema) -> Take:
    function, inner = _call(argument)
    if len(inner) != 1:
        raise argument.fault("a call is expected, such as sum(amount)", *argument.span())
    return Take(function.text.lower(), _column(inner[0], schema))


def _column(source: SourceText, schema: pa.Schema) -> str:
    first, *others = source.tokens
    if others or first.token_type == TokenType.STRING:
        raise source.fault("the name of a column is expected", *source.span())
    if first.text not in schema.names:
        hint = nearest(first.text, schema.names)
        raise source.fault(f"the queue has no column {first.text!r}{hint}", *source.span())
    return first.text


def _condition(source: SourceText, schema: pa.Schema) -> str:
    """Return the text of a condition; it is checked here to show the position of a fault."""
    root, _ = understand(source.tree(), source, schema)
    start, end = source.span()
    try:
        truth(root)
    except Unfit as error:
        raise source.fault(str(error), start, end) from error
    return source.text[start : end + 1]
