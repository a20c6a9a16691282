"""Metrics for Prometheus: a collector for a registry, and a server of one page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from queue_core.monitoring import readings
from queue_core.monitoring.metric import METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from queue_core.catalog.database import Catalog

#: The type of `page` in HTTP.
CONTENT_TYPE = CONTENT_TYPE_LATEST


class StoreCollector(Collector):
    """Reads the metrics of a store for each scrape."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the metrics without values, so that to register it reads nothing."""
        return map(_family, METRICS)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the metrics with their present values."""
        for metric, values in readings.read(self._catalog).items():
            family = _family(metric)
            for labels, value in values:
                family.add_metric(labels, value)
            yield family


def page(catalog: Catalog) -> str:
    """Return the metrics of a store in Prometheus's text format."""
    return generate_latest(_registry(catalog)).decode()


def serve(catalog: Catalog, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """
    Serve the metrics in a thread; return the port, and a function that ends it.

    Raises `OSError` if the port is taken.
    """
    server, thread = start_http_server(port, addr=host, registry=_registry(catalog))

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop


def _registry(catalog: Catalog) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(StoreCollector(catalog))
    return registry


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.counts else GaugeMetricFamily
    return kind(metric.prometheus, metric.about, labels=metric.labels)
