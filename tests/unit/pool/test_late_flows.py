"""A late value has one message in hand, of half of the workers at most, until a call is in time."""

import pyarrow as pa

from queue_core.pool.late_flows import LateFlows


def messages(*tenants):
    ids = pa.array(range(len(tenants)), pa.int64())
    return pa.table({"_message_id": ids, "tenant": pa.array(tenants, pa.string())})


def ended(late, *pairs):
    """Note the ends of calls: pairs of an id and a tenant, and its kind."""
    ids, tenants, kinds = zip(*pairs, strict=True)
    batch = pa.record_batch(
        {"_message_id": pa.array(ids, pa.int64()), "tenant": pa.array(tenants, pa.string())}
    )
    return late.ended(batch, pa.array(kinds, pa.string()))


def ids_of(screened):
    return [each.column("_message_id").to_pylist() for each in screened]


def late_flows(*tenants, workers=8):
    late = LateFlows("tenant", lambda: workers)
    for tenant in tenants:
        assert not ended(late, (-1, tenant, "timeout"))
    return late


def test_only_the_first_message_of_each_late_value_is_handled_and_the_next_firing_leaves_it_out():
    late = late_flows("a", None)
    assert late
    assert late.left_out() is None
    assert ids_of(late.screened(messages("c", "a", None, "c", "a", None))) == [
        [0, 3],
        [1, 2],
        [4, 5],
    ]
    assert late.left_out().values == {"a", None}
    assert ids_of(late.screened(messages("a", "b", None))) == [[1], [], [0, 2]]


def test_a_value_is_late_no_more_when_the_call_for_the_message_in_hand_ends_in_time():
    late = late_flows("a")
    late.screened(messages("a"))
    # Calls that had begun before say nothing, and the message in hand stays the only one.
    assert not ended(late, (7, "a", None))
    assert not ended(late, (8, "a", "timeout"))
    assert late.left_out().values == {"a"}
    for kind in ("timeout", "unhandled", "unreadable"):
        assert ended(late, (0, "a", kind))
        assert late.left_out() is None
        assert late
        late.screened(messages("a"))
    assert ended(late, (0, "a", "exception"))
    assert not late


def test_late_values_have_half_of_the_workers():
    late = late_flows(*"abc", workers=5)
    assert ids_of(late.screened(messages(*"abc"))) == [[], [0, 1], [2]]
    # Now there is room for none of them.
    assert late.left_out().values == set("abc")
    ended(late, (0, "a", None))
    assert late.left_out().values == {"b"}


def test_messages_of_another_column_are_passed_over():
    late = late_flows("a")
    batch = pa.record_batch({"_message_id": pa.array([0]), "region": pa.array(["a"])})
    assert not late.ended(batch, pa.array(["timeout"]))
