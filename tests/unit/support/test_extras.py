"""A missing library is named, with the extra that brings it."""

from queue_core.errors import BadOption
from queue_core.support.extras import missing


def test_it_names_the_library_and_what_to_install():
    error = missing("ignis metrics", ModuleNotFoundError(name="prometheus_client"), "metrics")

    assert isinstance(error, BadOption)
    assert str(error) == (
        "ignis metrics: prometheus_client is not installed: pip install 'ignis-queue[metrics]'"
    )
