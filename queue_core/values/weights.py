"""The weights of the values of a fair queue: the setting `fair_weights`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from queue_core.errors import BadOption
from queue_core.values.durations import is_number

#: Values of the column as texts, in order, with their weights.
Weights: TypeAlias = tuple[tuple[str, float], ...]

#: The least and the greatest weight.
RANGE = (0.001, 1000.0)
_FORM = 'write them as a mapping such as {"acme": 3, "zeta": 0.5}'


def as_weights(given: object) -> Weights:
    """Return weights from a mapping, pairs, a JSON text or None; raises `BadOption`."""
    if given is None or given == "":
        return ()
    wanted = given
    if isinstance(given, str):
        try:
            wanted = json.loads(given)
        except ValueError as error:
            raise BadOption(f"fair_weights={given!r}: {_FORM}") from error
    pairs = list(wanted.items()) if isinstance(wanted, Mapping) else wanted
    if not isinstance(pairs, Iterable) or isinstance(pairs, str):
        raise BadOption(f"fair_weights={given!r}: {_FORM}")
    found: dict[str, float] = {}
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise BadOption(f"fair_weights={given!r}: {_FORM}")
        value, weight = pair
        if not is_number(weight) or not RANGE[0] <= weight <= RANGE[1]:
            raise BadOption(
                f"fair_weights: the weight of {value!r} is {weight!r}; use a number from "
                f"{RANGE[0]:g} to {RANGE[1]:g}"
            )
        found[text_of_value(value)] = float(weight)
    return tuple(sorted(found.items()))


def text_of_value(value: object) -> str:
    """Return the text by which weights name a value of a column."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise BadOption(f"fair_weights: {value!r} is not a text, a whole number or a boolean")
