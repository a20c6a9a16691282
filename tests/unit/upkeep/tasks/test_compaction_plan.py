"""The slices that are worth compacting, and their groups."""

from dataclasses import replace

import pytest

from queue_core.catalog.slices import rewritable
from queue_core.catalog.slices.rewritable import Fullness
from queue_core.upkeep.tasks import compaction_plan
from queue_core.upkeep.tasks.compaction_plan import units
from queue_core.values.model import MAX_SEGMENT_ROWS
from tests.factories import make_slice

SMALL = Fullness(bytes=100, alive=100, filed=False, waiting=True)
LARGE = Fullness(bytes=1 << 20, alive=1 << 20, filed=True, waiting=True)
SPARSE = Fullness(bytes=1 << 20, alive=1 << 10, filed=True, waiting=True)


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(rewritable, "NEIGHBOURS", 3)


def singles(count, **values):
    """Slices of one row each, one behind the other."""
    first = values.pop("position", 0)
    return [
        make_slice([0], position=first + n, segment_id=first + n, **values) for n in range(count)
    ]


def planned(pieces, *, busy=(), age=None, **conditions):
    """The positions of the slices in each group of each unit; segments are small unless told."""
    known = {piece.segment_id: SMALL for piece in pieces}
    known |= {int(name[1:]): condition for name, condition in conditions.items()}
    waiting = {piece.id for piece in pieces if piece.position not in busy}
    found = units(pieces, waiting, known, age)
    return [[[piece.position for piece in group.pieces] for group in unit] for unit in found]


def test_small_neighbours_become_one():
    assert planned(singles(4)) == [[[0, 1, 2, 3]]]
    assert planned(singles(2)) == [], "few are left alone"
    # Those of another shard are no neighbours.
    assert planned([*singles(3), *singles(3, position=3, shard=1)]) == [[[0, 1, 2], [3, 4, 5]]]


def test_those_of_one_age_become_one_in_one_segment():
    pieces = [*singles(3, loaded_at=19), *singles(2, position=3, loaded_at=30)]
    assert planned(pieces, age=10) == [[[0, 1, 2], [3, 4]]]
    assert planned(pieces, age=11) == planned(pieces) == [[[0, 1, 2, 3, 4]]]
    # An age begins with the first of its messages.
    pieces = [piece for at in range(6) for piece in singles(1, position=at, loaded_at=at)]
    assert planned(pieces, age=2) == [[[0, 1, 2], [3, 4, 5]]]


def test_the_old_behind_the_young_are_of_another_age():
    pieces = [*singles(3, loaded_at=30), *singles(3, position=3, loaded_at=0)]
    assert planned(pieces, age=10) == [[[0, 1, 2], [3, 4, 5]]]


def test_of_several_ages_what_lies_between_each_other_is_left_alone():
    around, between = make_slice([0, 2], loaded_at=0), make_slice([1], segment_id=9, loaded_at=99)
    between = replace(between, position=1)
    pieces = [around, between, *singles(3, position=3, loaded_at=0)]
    assert planned(pieces, age=10) == [[[3, 4, 5]]]
    assert planned(pieces, age=99) == planned(pieces)


def test_what_would_be_hardly_fewer_is_left_alone():
    pieces = [piece for at in range(4) for piece in singles(1, position=at, loaded_at=10 * at)]
    assert planned(pieces, age=5) == []
    assert planned(pieces, age=10) == [[[0, 1], [2, 3]]]


def test_what_is_busy_parts_its_neighbours():
    assert planned(singles(8), busy=[3]) == [[[0, 1, 2], [4, 5, 6, 7]]]
    assert planned(singles(5), busy=[2]) == []


def test_a_large_segment_parts_its_neighbours():
    assert planned(singles(8), s4=LARGE) == [[[0, 1, 2, 3], [5, 6, 7]]]


def test_a_sparse_segment_needs_no_neighbours():
    assert planned(singles(1), s0=SPARSE) == [[[0]]]
    assert planned(singles(2), s0=SPARSE) == [[[0, 1]]]


@pytest.mark.parametrize(
    "condition",
    [
        Fullness(bytes=1 << 20, alive=1 << 18, filed=True, waiting=True),
        Fullness(bytes=1 << 20, alive=1 << 10, filed=True, waiting=False),
        Fullness(bytes=1 << 20, alive=1 << 10, filed=False, waiting=True),
    ],
    ids=["a quarter is alive", "some is in flight", "inlined"],
)
def test_a_segment_that_would_stay_or_is_worth_keeping_is_left_alone(condition):
    assert planned(singles(1), s0=condition) == []


@pytest.mark.parametrize("name", ["attempts", "deliveries", "fired_at"])
def test_only_what_nothing_tells_apart_is_merged(name):
    pieces = [*singles(3, **{name: 1}), *singles(3, position=3, **{name: 2})]

    assert planned(pieces) == [[[0, 1, 2], [3, 4, 5]]]


def test_slices_whose_places_interleave_go_together_or_not_at_all():
    one, other = make_slice([0, 2], position=0), make_slice([1], position=1)
    rest = singles(3, position=10)

    assert planned([one, other, *rest]) == [[[0, 1, 10, 11, 12]]]
    assert planned([one, other, *rest], busy=[1]) == [[[10, 11, 12]]]


def test_a_unit_has_so_many_slices(monkeypatch):
    monkeypatch.setattr(compaction_plan, "UNIT_LIMITS", (4, 1 << 20, 1 << 20))

    assert planned(singles(10)) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]], [[8, 9]]]


def test_a_unit_has_so_many_bytes():
    half = compaction_plan.UNIT_BYTES // 2

    assert planned(singles(4, bytes=half)) == [[[0, 1]], [[2, 3]]]
    assert planned(singles(4, bytes=compaction_plan.UNIT_BYTES + 1)) == []


def test_a_segment_numbers_so_many_rows():
    far = MAX_SEGMENT_ROWS - 2

    assert planned([*singles(3), *singles(3, position=far)]) == [
        [[0, 1, 2, far, far + 1]],
        [[far + 2]],
    ]
    pieces = [*singles(3), *singles(3, position=far + 3, shard=1)]
    assert planned(pieces) == [[[0, 1, 2], [far + 3, far + 4, far + 5]]]
