"""Spark's read limits: those of the options, and those of a trigger, which override them."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from ignis_source.options import SourceOptions


def default_limit(options: SourceOptions) -> ReadLimit:
    """Return the limit that Spark shows for each trigger; of two limits, it can hold one."""
    if options.max_messages is not None:
        return ReadMaxRows(options.max_messages)
    if options.max_bytes is not None:
        return ReadMaxBytes(options.max_bytes)
    if options.min_messages is not None:
        return ReadMinRows(options.min_messages)
    return ReadAllAvailable()


def admitted(options: SourceOptions, limit: ReadLimit) -> tuple[int | None, int | None]:
    """
    Return the most messages and bytes that a trigger reads.

    Trigger.Once reads all available messages, regardless of the options.
    """
    if isinstance(limit, ReadAllAvailable):
        return None, None
    return options.max_messages, options.max_bytes


def lingers(options: SourceOptions, limit: ReadLimit) -> bool:
    """Return whether a trigger waits for more messages; Trigger.Once does not."""
    return options.min_messages is not None and not isinstance(limit, ReadAllAvailable)
