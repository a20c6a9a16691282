"""What all queries of `consume` have in common: a checkpoint, options, and how they start."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ignis_source.options import OPTIONS
from pyspark_ignis.side_tasks import STREAM, THREAD, beside, check_side_tasks
from pyspark_ignis.spark_session import finding_ignis, prepare
from queue_core.errors import BadOption
from queue_core.values.address import handed_on
from queue_core.values.durations import in_seconds
from queue_core.values.names import nearest, speaking
from queue_core.values.retry import Retry
from queue_core.values.schema import METADATA

_TRIGGERS = ("availableNow", "once", "processingTime")
#: Arguments of `consume` for options of the source with other names.
_ARGUMENTS = {"maxMessagesPerTrigger": "max_messages", "queues": "queue"}
#: Options that the source and the sink share.
_SHARED = ("path", "catalog", "storage", "queue", "queues", "consumer", "breaker")
#: Options of the source that a query sets, or has an argument for.
_RESERVED = ("ack", "view", "task", "magazine", "maxMessagesPerTrigger", *_SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """A query that fires messages and settles them, before it is started."""

    #: The folder of its checkpoint, as an absolute path or a URI.
    checkpoint: str
    #: The options of its source.
    source: dict[str, str]
    #: At most one argument of ``DataStreamWriter.trigger``.
    trigger: dict[str, Any]
    name: str | None
    #: Where the side tasks run.
    side_tasks: str = THREAD

    @staticmethod
    def of(
        call: Callable[..., StreamingQuery],
        queues: str | Sequence[str],
        checkpoint: str | Path,
        *,
        path: str | Path | None,
        catalog: str | None,
        storage: str | None,
        max_messages: int | None,
        consumer: str | None,
        trigger: Mapping[str, Any] | None,
        name: str | None,
        options: Mapping[str, Any],
        magazine: str = "main",
    ) -> QueryPlan:
        """Return the plan for these arguments of *call*, such as `consume`; raises `BadOption`."""
        folder = checkpoint_folder(checkpoint)
        several = not isinstance(queues, str)
        given = _allowed(options, call) | {
            **handed_on(path, catalog, storage),
            "queues" if several else "queue": ",".join(queues) if several else queues,
            "magazine": magazine,
            "maxMessagesPerTrigger": max_messages,
            "consumer": consumer or consumer_of(folder),
            "ack": "settle",
        }
        return QueryPlan(
            checkpoint=folder,
            source={key: _text(value) for key, value in given.items() if value is not None},
            trigger=_checked_trigger(trigger),
            name=name,
        )

    def with_side_tasks(self, where: str) -> QueryPlan:
        """Return the plan with side tasks elsewhere than in the thread; raises `BadOption`."""
        if check_side_tasks(where) == THREAD:
            return self
        if any(option.lower() == "tasks" for option in self.source):
            raise BadOption(
                f"tasks= names the tasks of the thread; remove it, or side_tasks={where!r}"
            )
        return replace(self, source=self.source | {"tasks": "none"}, side_tasks=where)

    def messages(
        self, spark: SparkSession, columns: Sequence[str], available: StructType
    ) -> DataFrame:
        """Return the messages that the query fires, with some of the columns that there are."""
        left = [name for name in available.names if name not in columns]
        with finding_ignis():
            reader = spark.readStream.format("ignis").options(**self.source)
            if {*left} <= {*METADATA.names} and list(columns) == [
                name for name in available.names if name in columns
            ]:
                # It takes all columns of the queues, and must not leave out those added later.
                return reader.load().drop(*left)
            return reader.schema(StructType([available[name] for name in columns])).load()

    def start(
        self,
        spark: SparkSession,
        settled: DataFrame,
        retry: Retry | None = None,
        output: str | None = None,
    ) -> StreamingQuery:
        """Start the query, which writes the outcomes *settled*, and rows to the *output*."""
        shared = {key: self.source[key] for key in _SHARED if key in self.source}
        writer = settled.writeStream.format("ignis").options(mode="settle", **shared)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if retry is not None:
            writer = writer.option("retry", str(retry.by_kinds()))
        if output is not None:
            writer = writer.option("output", output)
        if self.trigger:
            writer = writer.trigger(**self.trigger)
        if self.name is not None:
            writer = writer.queryName(self.name)
        prepare(spark, self.checkpoint)
        query = writer.start()
        if self.side_tasks == STREAM:
            beside(spark, query, self.source, self.checkpoint)
        return query


def consumer_of(checkpoint: str | Path) -> str:
    """
    Return the name of the consumer that a query with this checkpoint has, even after a restart.

    The name is derived from the checkpoint's location. A checkpoint that is moved keeps its first
    consumer: find the name in the view ``consumers``, and pass it as ``consumer=``.

    Args:
        checkpoint: Folder of the query's checkpoint.

    Returns:
        The consumer's name: ``consume:``, the last folder of the checkpoint, ``:`` and 16
        hexadecimal digits.

    Raises:
        BadOption: *checkpoint* is empty, or neither a text nor a path.
    """
    folder = checkpoint_folder(checkpoint)
    told = speaking(folder.rpartition("/")[2])
    return f"consume:{told}:{hashlib.sha256(folder.encode()).hexdigest()[:16]}"


def checkpoint_folder(checkpoint: str | Path) -> str:
    """Return the folder of a checkpoint as an absolute path or a URI; raises `BadOption`."""
    text = folder_text("checkpoint", checkpoint, "the query keeps its progress")
    if not urlsplit(text).scheme:
        return os.path.abspath(os.path.expanduser(text))
    return text.rstrip("/")


def folder_text(name: str, given: object, there: str) -> str:
    """Return the text of a folder, an argument; raises `BadOption`, which says what is *there*."""
    if not isinstance(given, str | os.PathLike):
        raise BadOption(
            f"{name}={given!r} is not a folder: give the text or the path of the folder in which "
            f"{there}"
        )
    if not str(given):
        raise BadOption(f"{name} is empty: give the folder in which {there}")
    return str(given)


def _allowed(options: Mapping[str, Any], call: Callable[..., StreamingQuery]) -> dict[str, Any]:
    """Return the options that *call* passes to the source; raises `BadOption` for all others."""
    arguments = [name for name in signature(call).parameters if name != "options"]
    known = {option.name.lower(): option.name for option in OPTIONS}
    reserved = {option.lower() for option in _RESERVED}
    refusal = f"{call.__name__}() does not take it"
    faults = []
    for option in options:
        name = known.get(option.lower())
        if option == "options":
            faults.append("'options' is not an argument: pass each option by its own name")
        elif name is None:
            free = [other for other in known.values() if other.lower() not in reserved]
            faults.append(f"unknown argument {option!r}{nearest(option, [*arguments, *free])}")
        elif option.lower() in reserved:
            argument = _ARGUMENTS.get(name, name)
            instead = f"use {argument}=" if argument in arguments else refusal
            faults.append(f"{option!r} cannot be passed as a source option; {instead}")
    if faults:
        raise BadOption(f"{call.__name__}: {'; '.join(faults)}")
    return dict(options)


def _text(value: Any) -> str:
    value = in_seconds(value) if isinstance(value, timedelta) else value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked_trigger(trigger: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        given = dict(trigger or {})
    except (TypeError, ValueError):
        meant: dict[str, Any] = {"availableNow": True}
        if isinstance(trigger, str) and trigger != "availableNow":
            meant = {"once": True} if trigger == "once" else {"processingTime": trigger}
        raise BadOption(f"trigger={trigger!r}: give a dict, such as trigger={meant!r}") from None
    if len(given) > 1:
        raise BadOption(f"trigger={given!r}: give one of {', '.join(_TRIGGERS)}")
    for kind in given:
        if kind not in _TRIGGERS:
            raise BadOption(
                f"trigger={given!r}: use one of {', '.join(_TRIGGERS)}{nearest(kind, _TRIGGERS)}"
            )
    return given
