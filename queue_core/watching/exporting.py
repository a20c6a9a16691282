"""The functions that users call to export metrics; they import the libraries when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_core.support.import_paths import missing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client.registry import Collector

    from queue_core.watching.readings import AnyStore


def prometheus_collector(store: AnyStore) -> Collector:
    """
    Return a collector of the store's metrics for a registry of `prometheus_client`.

    Each scrape reads the catalog in one transaction: counters, and no messages. The page
    docs/monitoring.md lists the metrics and their labels.

    Args:
        store: The store. It stays open as long as the collector is registered.

    Returns:
        The collector, for ``REGISTRY.register(…)``. A scrape raises `CatalogUnavailable` while the
        catalog cannot be reached.

    Raises:
        BadOption: prometheus-client is not installed.
    """
    try:
        from queue_core.watching.prometheus import StoreCollector
    except ModuleNotFoundError as error:
        raise missing("prometheus_collector", error, "metrics") from error
    return StoreCollector(store)


def opentelemetry_instruments(store: AnyStore, provider: MeterProvider | None = None) -> None:
    """
    Register observable instruments for the store's metrics with OpenTelemetry.

    Each export reads the catalog in one transaction. The names begin with ``ignis.``, and the queue
    is the attribute ``messaging.destination.name``.

    Args:
        store: The store. It stays open as long as the provider exports.
        provider: The meter provider, which takes the instruments of one store: each further store
            needs one of its own. By default, the global one.

    Raises:
        BadOption: opentelemetry-api is not installed.
    """
    try:
        from queue_core.watching.opentelemetry import register
    except ModuleNotFoundError as error:
        raise missing("opentelemetry_instruments", error, "metrics") from error
    register(store, provider)
