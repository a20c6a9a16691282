"""Apply a handler to a DataFrame of messages; the result is the input of a settle sink."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import TypeAlias

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructType

from pyspark_ignis.shipping import checked
from queue_core.errors import BadOption
from queue_core.handling.breaker import Breaker
from queue_core.handling.contract import Contract, check_payload
from queue_core.handling.gate import STOPPED
from queue_core.handling.handler import BatchHandler, HandlerRunner, RowHandler, RunnerByQueue
from queue_core.handling.output import OUTPUT, Output
from queue_core.handling.payloads import Payload
from queue_core.handling.results import REFUSAL
from queue_core.handling.took import TOOK
from queue_core.values.failure_kinds import REJECTED, UNDECIDED
from queue_core.values.names import listed
from queue_core.values.outcomes import DELETE, RELOAD, SIDELINE

#: A function of one message, a function marked by `batch_handler`, or a boolean expression.
Handler: TypeAlias = RowHandler | BatchHandler | Column

#: The name under which a query's progress reports how many messages had which outcome.
METRICS = "ignis"


def settlement(
    messages: DataFrame,
    contract: Contract,
    timeout: float | None,
    breaker: Breaker | None = None,
    *,
    may_put_off: bool = True,
    output: Output | None = None,
) -> DataFrame:
    """
    Return the outcomes of *messages*, as the settle sink takes them.

    With an *output*, they have the rows for it. A Python call may take *timeout* seconds. Messages
    of a sideline cannot be put off (*may_put_off*). Raises `BadOption` for a handler that cannot be
    used.
    """
    if isinstance(contract.handler, Column):
        if not contract.is_plain or breaker is not None or output is not None:
            raise BadOption(
                "ignorable, handler_timeout, payload, on_none, breaker and output are for handlers "
                "in Python; an expression raises no exceptions, cannot be interrupted, and can use "
                "from_json and coalesce"
            )
        if contract.retry is not None and contract.retry.classes:
            names = listed([each.__name__ for each in contract.retry.classes])
            raise BadOption(
                f"retry={contract.retry}: an expression raises no exceptions, so its policy cannot "
                f"name {names}; name kinds of failures, such as 'rejected'"
            )
        return _observed(_by_expression(messages, contract.handler))
    runner = runner_of(contract, timeout, messages.schema, may_put_off=may_put_off)
    return settled_by_python(messages, replace(runner, breaker=breaker, output=output))


def runner_of(
    contract: Contract, timeout: float | None, columns: StructType, *, may_put_off: bool = True
) -> HandlerRunner:
    """Return what runs a handler in Python on messages with these columns; raises `BadOption`."""
    if not callable(contract.handler):
        raise BadOption(
            f"handler={contract.handler!r}: give a function of one message, a function marked by "
            "batch_handler, an object with a method handle, or a boolean Column"
        )
    contract.check()
    if isinstance(contract.payload, Payload):
        kind = columns[contract.payload.column].dataType
        is_text = isinstance(kind, StringType | BinaryType)
        check_payload(contract.payload.column, kind.simpleString(), is_text=is_text)
    return HandlerRunner(contract, timeout, may_put_off=may_put_off)


def _by_expression(messages: DataFrame, expression: Column) -> DataFrame:
    try:
        kind = messages.select(expression).schema[0].dataType
    except AnalysisException as error:
        # After the first line, Spark shows the plan.
        reason = str(error).partition("\n")[0]
        raise BadOption(f"handler: Spark cannot evaluate the expression: {reason}") from error
    if not isinstance(kind, BooleanType):
        raise BadOption(f"handler: the expression is {kind.simpleString()}, not boolean")
    accepted = F.col("accepted")
    return messages.select("_message_id", expression.alias("accepted")).select(
        "_message_id",
        F.when(accepted, DELETE).otherwise(SIDELINE).alias("outcome"),
        F.when(~accepted, REJECTED).when(accepted.isNull(), UNDECIDED).alias("kind"),
    )


def check_pandas() -> None:
    """Raise `BadOption` if pandas is missing, which PySpark's `mapInArrow` requires."""
    if importlib.util.find_spec("pandas") is None:
        raise BadOption(
            "handler: Spark needs pandas for a handler in Python, and it is not installed here: "
            "pip install 'pandas>=2.2,<3'; a Column handler and a ConsumerPool do not need it"
        )


def settled_by_python(messages: DataFrame, runner: HandlerRunner | RunnerByQueue) -> DataFrame:
    """Return the outcomes of what a runner does on the executors; raises `BadOption`."""
    check_pandas()
    try:
        cloudpickle.dumps(runner)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise BadOption(
            f"handler: it cannot be sent to the executors ({error}); make connections, locks and "
            "open files where they are used, inside the handler"
        ) from error
    times = "not_before TIMESTAMP, delay DOUBLE, dead BOOLEAN"
    texts = f"outcome STRING, kind STRING, reason STRING, {times}, trace STRING"
    if isinstance(runner, HandlerRunner) and runner.output is not None:
        texts += f", {OUTPUT} BINARY"
    texts += f", {TOOK} STRING, {REFUSAL} STRING"
    if isinstance(runner, HandlerRunner) and runner.breaker is not None:
        texts += f", {STOPPED} BOOLEAN"
    settled = messages.mapInArrow(checked(runner).run_task, f"_message_id LONG, {texts}")
    return _observed(settled)


def _observed(settled: DataFrame) -> DataFrame:
    """Make the query's progress count the outcomes."""
    outcome, has_kind = F.col("outcome"), F.col("kind").isNotNull()
    return settled.observe(
        METRICS,
        F.count_if((outcome == DELETE) & ~has_kind).alias("deleted"),
        F.count_if(outcome == SIDELINE).alias("sidelined"),
        # A deleted message has a kind if its handler raised an exception that is ignored.
        F.count_if((outcome == DELETE) & has_kind).alias("ignored"),
        F.count_if(outcome == RELOAD).alias("reloaded"),
    )
