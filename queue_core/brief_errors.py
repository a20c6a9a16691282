"""Errors of ignis without the places in the code where they were found.

Spark shows an error of a Python source below all frames of its trace. Where the sentence of the
error says what is wrong and what to do, the frames only hide it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from queue_core.errors import IgnisError

P = ParamSpec("P")
R = TypeVar("R")


def briefly(function: Callable[P, R]) -> Callable[P, R]:
    """
    Let errors of ignis that a function raises have one frame, and no cause.

    Args:
        function: A function that Spark calls.

    Returns:
        A function that does the same. Other errors keep their traces.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except IgnisError as error:
            raise error.with_traceback(None) from None

    return called
