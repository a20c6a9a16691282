"""The garbage collector passes over modules, and finds garbage all the same."""

import gc
import sys
import types
import weakref

import pytest

from queue_core.support.collector import (
    collect_rarely,
    pass_over_all,
    pass_over_imports,
    without_collections,
)


@pytest.fixture(autouse=True)
def collector(monkeypatch):
    """The garbage collector as other tests expect it."""
    monkeypatch.setattr("queue_core.support.collector._passed_over", 0)
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    gc.unfreeze()
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def test_the_collector_is_off_meanwhile_and_on_afterwards():
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
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


class Thing:
    """Something that can refer to itself."""

    def __init__(self):
        self.it = self


def seen_after_a_search(thing):
    """Whether a thing that only it refers to is still there."""
    gc.collect()
    return thing() is not None


def test_what_came_before_is_passed_over_and_what_comes_later_is_collected():
    before = weakref.ref(Thing())
    pass_over_imports()
    after = weakref.ref(Thing())
    assert seen_after_a_search(before)
    assert not seen_after_a_search(after)


def test_more_is_passed_over_only_after_new_imports(monkeypatch):
    pass_over_imports()
    thing = weakref.ref(Thing())
    pass_over_imports()
    assert not seen_after_a_search(thing)

    monkeypatch.setitem(sys.modules, "a_new_module", types.ModuleType("a_new_module"))
    thing = weakref.ref(Thing())
    pass_over_imports()
    assert seen_after_a_search(thing)


def test_only_workers_that_serve_many_tasks_pass_over_anything_if_they_may(
    monkeypatch,
):
    gc.disable()
    pass_over_imports()
    assert gc.get_freeze_count() == 0

    gc.enable()
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    pass_over_imports()
    assert gc.get_freeze_count() == 0

    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    gc.freeze()
    thing = weakref.ref(Thing())
    pass_over_imports()
    assert not seen_after_a_search(thing)


def test_it_looks_rarely_only_until_it_passes_over_all(monkeypatch):
    monkeypatch.setattr("queue_core.support.collector._usual", None)
    usual = gc.get_threshold()
    pass_over_all()
    assert gc.get_threshold() == usual
    try:
        collect_rarely()
        assert gc.get_threshold()[0] > usual[0]
        pass_over_all()
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*usual)
