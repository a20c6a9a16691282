"""Rates are differences of counters between two samples, per second."""

from types import SimpleNamespace

from ignis_cli.top import TopReading, frame

COUNTS = {"waiting": 3, "in_flight": 3, "sidelined": 3, "damaged": 3, "all_deleted": 0}


def sample(at, **loaded):
    queues = {
        queue: SimpleNamespace(
            queue=queue, all_loaded=count, all_fired=2 * count, all_sidelined=None, **COUNTS
        )
        for queue, count in loaded.items()
    }
    return TopReading(at, queues)


def test_rates_are_the_growth_of_counters_per_second():
    (row,) = frame(sample(10.0, orders=100), sample(12.0, orders=150)).to_pylist()

    assert (row["loaded/s"], row["fired/s"], row["deleted/s"]) == (25.0, 50.0, 0.0)
    assert (row["queue"], row["waiting"], row["failed/s"]) == ("orders", 3, None)


def test_a_first_sample_and_a_new_queue_have_no_rates():
    first = frame(None, sample(10.0, orders=100))
    later = frame(sample(10.0, orders=100), sample(11.0, orders=101, payments=9))

    assert first["loaded/s"].to_pylist() == [None]
    assert later["loaded/s"].to_pylist() == [1.0, None]
