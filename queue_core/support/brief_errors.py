"""Errors of ignis without the places in the code where they were found.

Spark shows an error of a Python source below all frames of its trace. Where the sentence of the
error says what is wrong and what to do, the frames only hide it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from queue_core.errors import IgnisError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def briefly(function: Callable[P, R]) -> Callable[P, R]:
    """Let errors of ignis that a function raises have one frame, and no cause."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except IgnisError as error:
            raise error.with_traceback(None) from None

    return called


def briefly_yielded(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Do the same for a function that returns an iterator, and for its steps."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except IgnisError as error:
            raise error.with_traceback(None) from None

    return called
