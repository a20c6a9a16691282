"""The offset that checkpoints hold: its text is compared by Spark and read for ever."""

import json

import pytest

from ignis_source.offset import Offset, TaskOffset
from queue_core.errors import BadOption, Damaged

GOLDEN = '{"consumer": "clerk", "ticket": 7}'


def test_an_offset_is_written_with_its_keys_in_this_order():
    assert json.dumps(Offset("clerk", 7).to_json()) == GOLDEN


def test_an_offset_is_read_as_it_was_written():
    assert Offset.from_json(json.loads(GOLDEN)) == Offset("clerk", 7)


@pytest.mark.parametrize(
    "logged",
    [
        {},
        {"consumer": "clerk"},
        {"ticket": 7},
        {"consumer": "clerk", "ticket": "seven"},
        {"consumer": "clerk", "ticket": None},
        {"consumer": "../clerk", "ticket": 7},
        {"consumer": None, "ticket": 7},
        {"partition": 0, "offset": 3},
        [1],
    ],
)
def test_what_is_no_offset_of_ours_is_told_so(logged):
    with pytest.raises(Damaged, match="not an offset of an ignis source that reads messages"):
        Offset.from_json(logged)


def test_how_far_a_log_is_read_is_written_with_its_keys_in_this_order():
    offset = TaskOffset("tasks:a", since=3, round=5, report=7)
    logged = json.dumps(offset.to_json())

    assert logged == '{"stream": "tasks:a", "since": 3, "round": 5, "report": 7}'
    assert TaskOffset.from_json(json.loads(logged)) == offset


@pytest.mark.parametrize(
    "logged", [{}, {"consumer": "clerk", "ticket": 7}, {"stream": "tasks:a", "since": 1}, [1]]
)
def test_what_is_no_place_in_a_log_is_told_so(logged):
    with pytest.raises(Damaged, match="not an offset of an ignis source that runs side tasks"):
        TaskOffset.from_json(logged)


def test_side_tasks_of_another_store_are_refused():
    own = TaskOffset(TaskOffset.new_stream("one"), since=3, round=5, report=7)
    own.check_store("one")
    with pytest.raises(BadOption, match="belongs to the side tasks of another store, one, and"):
        own.check_store("two")
