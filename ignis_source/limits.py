"""Spark's read limits: what the options allow, and what a trigger overrides."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)

from ignis_source.options import SourceOptions


def default_limit(options: SourceOptions) -> ReadLimit:
    """What Spark is told that each trigger reads at most; of two limits it can hold one."""
    if options.max_messages is not None:
        return ReadMaxRows(options.max_messages)
    if options.max_bytes is not None:
        return ReadMaxBytes(options.max_bytes)
    return ReadAllAvailable()


def admitted(options: SourceOptions, limit: ReadLimit) -> tuple[int | None, int | None]:
    """
    Messages and bytes that a trigger reads at most.

    Trigger.Once asks for all that is available, whatever the options say.
    """
    if isinstance(limit, ReadAllAvailable):
        return None, None
    return options.max_messages, options.max_bytes
