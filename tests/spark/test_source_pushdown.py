"""With Spark's filter push-down on, a table has the right rows each time."""

import pytest

from tests.spark.rig import assert_rows

pytestmark = pytest.mark.nightly

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(params=[False, True], ids=["off", "on"])
def table(rig, spark, request):
    rig.orders(6)
    spark.conf.set(PUSHDOWN, request.param)
    yield rig.read()
    spark.conf.unset(PUSHDOWN)


def test_a_table_can_be_filtered_differently_and_more_than_once(table):
    two, three = table.where("number = 2"), table.where("number = 3")
    both = two.union(three).union(table.where("number < 1 OR customer = 'customer-5'"))
    assert_rows(both.select("number"), 0, 2, 3, 5)
    assert_rows(two.select("number"), 2)
    assert table.count() == 6
