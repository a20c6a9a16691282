"""Exporters name the extra that they need."""

import sys

import pytest

from queue_core import opentelemetry_instruments, prometheus_collector
from queue_core.errors import BadOption


@pytest.mark.parametrize(
    ("export", "library"),
    [(prometheus_collector, "prometheus_client"), (opentelemetry_instruments, "opentelemetry")],
)
def test_a_library_that_is_missing_is_named(monkeypatch, export, library):
    for name in [name for name in sys.modules if name.startswith("queue_core.watching.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(BadOption, match=r"pip install 'ignis-queue\[metrics\]'"):
        export(None)
