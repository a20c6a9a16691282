"""Imports without searches for garbage."""

import gc

import pytest

from ignis_source.imports import without_collections


@pytest.fixture(autouse=True)
def collector():
    """The garbage collector as other tests expect it."""
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def test_the_collector_is_off_meanwhile_and_on_afterwards():
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_the_collector_is_on_again_after_a_failed_import():
    with pytest.raises(ImportError), without_collections():
        raise ImportError
    assert gc.isenabled()


def test_a_collector_that_the_program_controls_is_left_alone():
    gc.disable()
    with without_collections():
        assert not gc.isenabled()
    assert not gc.isenabled()

    gc.enable()
    gc.freeze()
    with without_collections():
        assert gc.isenabled()
    assert gc.get_freeze_count() > 0
