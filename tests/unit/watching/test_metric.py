"""The names of metrics follow the conventions of Prometheus and OpenTelemetry."""

import re

from queue_core.watching.metric import ATTRIBUTES, METRICS, SECONDS


def test_a_name_has_its_unit_and_no_label():
    for metric in METRICS:
        assert re.fullmatch(r"ignis(_[a-z]+)+", metric.prometheus)
        assert re.fullmatch(r"ignis(\.[a-z_]+)+", metric.opentelemetry), metric
        assert not metric.unit or metric.prometheus.endswith(f"_{metric.unit}")
        # Prometheus appends it, and OpenTelemetry has the unit beside the name.
        assert not metric.prometheus.endswith("_total")
        assert SECONDS not in metric.opentelemetry, metric
        assert set(metric.labels) <= ATTRIBUTES.keys()
        assert metric.about.endswith("."), metric


def test_no_two_metrics_have_one_name():
    assert len({metric.prometheus for metric in METRICS}) == len(METRICS)
    assert len({metric.opentelemetry for metric in METRICS}) == len(METRICS)
