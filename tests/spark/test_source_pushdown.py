"""With Spark's filter push-down on, a table has the right rows each time."""

import pytest

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
    assert sorted(row.number for row in both.collect()) == [0, 2, 3, 5]
    assert [row.number for row in two.collect()] == [2]
    assert table.count() == 6
