import numpy as np
import pyarrow as pa
import pytest

from queue_core.segments.fair_order import NULL, arrange, one_flow, whole
from queue_core.values.ranks import TICKS


def part(*tenants, kind=None):
    kind = kind or pa.string()
    return pa.table({"tenant": pa.array(tenants, kind), "n": np.arange(len(tenants))})


def test_lanes_take_turns_and_keep_their_order():
    ((shard, rows),), numbers, ranking = arrange([(2, part(*"aaaab"))], "tenant", (), 0)

    assert shard == 2
    assert rows.column("tenant").to_pylist() == list("abaaa")
    assert rows.column("n").to_pylist() == [0, 4, 1, 2, 3]
    assert numbers.tolist() == [0, 2, 3, 4, 1]
    assert dict(zip(ranking.flow_of_rows().tolist(), [0] * 5, strict=True)).keys() == {0, 1}
    assert sorted(ranking.spans.tolist()) == [TICKS, 4 * TICKS]


def test_a_weight_gives_more_rows_in_each_turn():
    rows = part(*"aaaaaabbb")

    ((_, ordered),), _, ranking = arrange([(None, rows)], "tenant", (("a", 2.0),), 0)

    assert ordered.column("tenant").to_pylist()[:6].count("a") == 4
    assert ranking.spans.tolist() == [3 * TICKS, 3 * TICKS]


def test_a_lane_alternates_between_its_shards():
    rows = part(*["a"] * 50)

    _, _, ranking = arrange([(0, rows), (1, rows)], "tenant", (), 100)

    assert (ranking.start, ranking.stop) == (100, 200)
    assert [(line.start, line.stop) for line in ranking.stretches] == [(100, 150), (150, 200)]
    assert ranking.stretches[0].tag == 0
    assert ranking.stretches[1].tag == TICKS
    assert ranking.codes is None
    assert ranking.spans.tolist() == [100 * TICKS]


@pytest.mark.parametrize(
    ("kind", "values"), [(pa.int32(), [0, None, -1]), (pa.bool_(), [True, None, False])]
)
def test_every_value_has_a_key_and_so_have_nulls(kind, values):
    _, _, ranking = arrange([(None, part(*values, kind=kind))], "tenant", (), 0)

    assert len(set(ranking.flows.tolist())) == 3
    assert NULL in ranking.flows.tolist()


def test_a_value_has_the_same_key_in_every_load():
    (one,), (two,) = (
        arrange([(None, part(*["acme"] * n))], "tenant", (), 0)[2].flows.tolist() for n in (1, 3)
    )

    assert one == two > 2 or one == two < 0


def test_rows_without_ranks_are_one_lane():
    assert whole((), 10)[0].spans.tolist() == one_flow(10, 0).spans.tolist() == [10 * TICKS]
