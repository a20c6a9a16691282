"""The terms of a firing: limits, fair orders and weights, of queues by their settings."""

import pyarrow as pa
import pytest

from queue_core.errors import BadOption
from queue_core.selection.terms import Terms, terms_of
from queue_core.values.limits import limit
from queue_core.values.model import BY_SHARD, GLOBAL, Magazine
from tests.factories import make_info


def queue(id, **settings):
    schema = pa.schema([("customer", pa.string())])
    return make_info(schema, id=id, name=f"orders-{id}", **settings)


def terms(*queues, magazine=Magazine.MAIN, order_by=None, order=BY_SHARD):
    return terms_of(queues, magazine, order_by, order)


def test_a_plain_queue_has_no_terms():
    assert terms(queue(1)) == Terms()
    assert terms(queue(1), queue(2)) == Terms()


def test_limits_and_turns_count_only_in_main():
    five = limit(in_flight=5)
    both = queue(1, limits=(five,)), queue(2, fair_by="customer")
    assert terms(*both) == Terms(limits=((1, five),), fair=frozenset({2}))
    assert terms(*both, magazine=Magazine.SIDELINE) == Terms()


@pytest.mark.parametrize(
    ("how", "given"),
    [({"order_by": "customer"}, "order_by='customer'"), ({"order": GLOBAL}, "order='global'")],
)
def test_a_fair_queue_has_an_order_of_its_own(how, given):
    with pytest.raises(BadOption, match=f"{given} cannot be combined .* of queue 'orders-2'"):
        terms(queue(1), queue(2, fair_by="customer"), **how)
    assert terms(queue(1), **how) == Terms()


def test_weights_count_for_several_queues_without_an_order_over_all():
    light, heavy = queue(1), queue(2, weight=2.5)
    assert terms(light, heavy).weights == {1: 1000, 2: 2500}
    assert terms(light, heavy, magazine=Magazine.SIDELINE).weights == {1: 1000, 2: 2500}
    assert terms(heavy) == Terms()
    assert terms(light, heavy, order_by="customer") == Terms()
    assert terms(light, heavy, order=GLOBAL) == Terms()


def test_one_bounded_queue_makes_room():
    assert terms(queue(1), queue(2, max_size=0)).makes_room
    assert not terms(queue(1), queue(2)).makes_room
