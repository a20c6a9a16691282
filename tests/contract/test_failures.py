"""What failures have in common, in the views."""

import pyarrow as pa
import pytest

from queue_core import Settlement
from tests.factories import make_queue, orders

pytestmark = pytest.mark.each_catalog


def test_failures_with_ids_in_their_texts_are_one_group(store):
    queue, other = make_queue(store, shards=2), make_queue(store, "other")
    queue.load(orders(30_000))
    other.load(orders(1))
    ids = queue.fire(30_000).ids
    queue.settle(
        Settlement.of(
            pa.table(
                {
                    "_message_id": ids,
                    "outcome": pa.repeat("sideline", len(ids)),
                    "kind": pa.repeat("exception", len(ids)),
                    "reason": [f"LookupError: mailbox of c{id} does not exist" for id in ids],
                }
            )
        )
    )
    other.sideline(other.fire(1), "LookupError: c5", kind="exception")

    for view in ("sideline", "failures"):
        found = (
            store.view(view).group_by(["queue", "fingerprint"]).aggregate([("message_id", "count")])
        )
        assert sorted(map(tuple, map(dict.values, found.to_pylist()))) == [
            ("orders", "LookupError: mailbox of * does not exist", 30_000),
            ("other", "LookupError: *", 1),
        ]
