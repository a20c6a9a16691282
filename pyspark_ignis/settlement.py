"""From a DataFrame of messages and a handler to the DataFrame that a settle sink takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from pyspark_ignis.handlers import REJECTED, UNDECIDED, BatchHandler, Handling, RowHandler
from queue_core.errors import BadOption
from queue_core.outcomes import DELETE, RELOAD, SIDELINE

#: A function of one message, a function marked by `batch_handler`, or a boolean expression.
Handler: TypeAlias = RowHandler | BatchHandler | Column
Ignorable: TypeAlias = type[Exception] | Sequence[type[Exception]]

#: The name under which a query's progress reports how many messages had which outcome.
METRICS = "ignis"


def settlement(
    messages: DataFrame,
    handler: Handler,
    ignorable: Ignorable = (),
    timeout: float | None = None,
) -> DataFrame:
    """
    What *handler* makes of *messages*: ``_message_id``, ``outcome`` and ``reason``.

    Raises `BadOption` for a handler that cannot be used.
    """
    if isinstance(handler, Column):
        if ignorable or timeout is not None:
            raise BadOption(
                "ignorable and handler_timeout are for handlers in Python; an expression raises "
                "nothing that could be ignored, and cannot be interrupted"
            )
        return _observed(_by_expression(messages, handler))
    if not callable(handler):
        raise BadOption(
            f"handler={handler!r}: give a function of one message, a function marked by "
            "batch_handler, or a boolean Column"
        )
    handling = Handling(handler, _classes(ignorable), _seconds(timeout))
    return _observed(_by_python(messages, handling))


def _by_expression(messages: DataFrame, verdict: Column) -> DataFrame:
    try:
        kind = messages.select(verdict).schema[0].dataType
    except AnalysisException as error:
        # Behind its first line, Spark shows the plan.
        told = str(error).partition("\n")[0]
        raise BadOption(f"handler: Spark cannot evaluate the expression: {told}") from error
    if not isinstance(kind, BooleanType):
        raise BadOption(f"handler: the expression is {kind.simpleString()}, not boolean")
    decided = F.col("verdict")
    return messages.select("_message_id", verdict.alias("verdict")).select(
        "_message_id",
        F.when(decided, DELETE).otherwise(SIDELINE).alias("outcome"),
        F.when(~decided, REJECTED).when(decided.isNull(), UNDECIDED).alias("reason"),
    )


def _by_python(messages: DataFrame, handling: Handling) -> DataFrame:
    try:
        cloudpickle.dumps(handling)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise BadOption(
            f"handler: it cannot be sent to the executors ({error}); make connections, locks and "
            "open files where they are used, inside the handler"
        ) from error
    schema = "_message_id LONG, outcome STRING, reason STRING"
    return messages.mapInArrow(handling.run, schema)


def _observed(settled: DataFrame) -> DataFrame:
    """The same, and the query's progress counts the outcomes."""
    outcome, told = F.col("outcome"), F.col("reason").isNotNull()
    return settled.observe(
        METRICS,
        F.count_if((outcome == DELETE) & ~told).alias("deleted"),
        F.count_if(outcome == SIDELINE).alias("sidelined"),
        # A deleted message has a reason when it is an exception that was ignored.
        F.count_if((outcome == DELETE) & told).alias("ignored"),
        F.count_if(outcome == RELOAD).alias("reloaded"),
    )


def _classes(ignorable: Any) -> tuple[type[Exception], ...]:
    classes = (ignorable,) if isinstance(ignorable, type) else tuple(ignorable)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise BadOption(f"ignorable: {each!r} is no subclass of Exception")
    return classes


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < math.inf:
        raise BadOption(f"handler_timeout={timeout!r}: use seconds, more than 0")
    return float(timeout)
