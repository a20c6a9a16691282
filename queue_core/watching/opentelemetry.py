"""Metrics for OpenTelemetry: observable instruments that read the catalog at each export."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial
from importlib.metadata import version

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

from queue_core.watching import readings
from queue_core.watching.metric import (
    ATTRIBUTES,
    BYTES,
    HISTOGRAMS,
    MESSAGES,
    METRICS,
    PLAIN,
    RATIO,
    SECONDS,
    Metric,
)
from queue_core.watching.readings import AnyStore

#: Seconds for which the instruments of one export share a reading.
_SHARED_SECONDS = 1.0
_UNITS = {MESSAGES: "{message}", SECONDS: "s", BYTES: "By", RATIO: "1", PLAIN: "1"}


class _SharedMeters:
    """One reading for all instruments of an export."""

    def __init__(self, store: AnyStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._found: readings.Readings = {}
        self._read_at = float("-inf")

    def of(self, metric: Metric, part: str, _: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            if time.monotonic() - self._read_at > _SHARED_SECONDS:
                self._found = {}
                try:
                    self._found = readings.read(self._store)
                finally:
                    # If it failed, the other instruments do not wait for the catalog, too.
                    self._read_at = time.monotonic()
            found = self._found.get(metric, [])
        names = [ATTRIBUTES[label] for label in metric.labels]
        return [
            Observation(number, dict(zip(names, labels, strict=True)) | dict(more))
            for labels, value in found
            for end, more, number in readings.parts(metric, value)
            if end == part
        ]


def register(store: AnyStore, provider: MeterProvider | None) -> None:
    """Register the instruments of a store with a provider; None: the global one."""
    meter = (provider or get_meter_provider()).get_meter("ignis", version("ignis-queue"))
    shared = _SharedMeters(store)
    for metric in HISTOGRAMS:
        # An observable histogram does not exist: counters of its buckets, as Prometheus has them.
        for part, unit in (("_bucket", MESSAGES), ("_count", MESSAGES), ("_sum", SECONDS)):
            meter.create_observable_counter(
                metric.opentelemetry + part.replace("_", "."),
                callbacks=[partial(shared.of, metric, part)],
                unit=_UNITS[unit],
                description=metric.about,
            )
    for metric in METRICS:
        if metric in HISTOGRAMS:
            continue
        make = meter.create_observable_counter if metric.counts else meter.create_observable_gauge
        make(
            metric.opentelemetry,
            callbacks=[partial(shared.of, metric, "")],
            unit=_UNITS[metric.unit],
            description=metric.about,
        )
