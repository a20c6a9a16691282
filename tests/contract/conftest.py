"""What holds for the store of every test of a verb, when the test is over."""

from collections.abc import Iterator

import pytest

from tests.books import audit


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spoiled: the test damages the store on purpose")


@pytest.fixture(autouse=True)
def _books_agree(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every message is in one place, and the counters say the same."""
    store = request.getfixturevalue("store") if "store" in request.fixturenames else None
    yield
    if store is not None and request.node.get_closest_marker("spoiled") is None:
        audit(store)
