"""The reserve of an embedded catalog; `test_full_disk.py` in tests/contract fills a real disk."""

import os

import pytest

from queue_core.catalog.reserve import LEAST_BYTES, MOST_BYTES, Reserve


@pytest.fixture
def catalog(tmp_path):
    file = tmp_path / "catalog.db"
    file.touch()
    return file


def size_of(catalog):
    return catalog.with_name("catalog.db-reserve").stat().st_size


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, LEAST_BYTES), (2 * LEAST_BYTES, 2 * LEAST_BYTES), (2 * MOST_BYTES, MOST_BYTES)],
)
def test_the_reserve_is_as_large_as_the_catalog_within_bounds(catalog, size, expected):
    os.truncate(catalog, size)
    assert Reserve(catalog).keep()
    assert size_of(catalog) == expected


def test_a_reserve_grows_and_does_not_shrink(catalog):
    reserve = Reserve(catalog)
    os.truncate(catalog, 3 * LEAST_BYTES)
    reserve.keep()
    os.truncate(catalog, 2 * LEAST_BYTES)
    reserve.keep()
    assert size_of(catalog) == 3 * LEAST_BYTES


def test_a_reserve_that_was_given_up_is_made_again(catalog):
    reserve = Reserve(catalog)
    reserve.keep()
    reserve.give_up()
    assert not catalog.with_name("catalog.db-reserve").exists()
    reserve.give_up()

    assert reserve.is_there()
    assert size_of(catalog) == LEAST_BYTES


def test_a_catalog_on_a_server_has_no_reserve():
    reserve = Reserve(None)
    reserve.give_up()
    assert reserve.keep()
    assert reserve.is_there()


def test_a_folder_that_cannot_be_written_needs_no_reserve(tmp_path):
    """As for processes that may only read: only a disk without room refuses loads."""
    assert Reserve(tmp_path / "missing" / "catalog.db").is_there()
