"""Metrics of a store for other programs: Prometheus and OpenTelemetry."""
