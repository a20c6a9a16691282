"""Evaluating a tree: no deep recursion, and no step twice."""

from tests.unit.selector.selector_table import select


def test_thousands_of_conditions_are_no_deep_recursion():
    listed = " OR ".join(f"id = {n}" for n in range(1, 2001))
    assert select(listed) == [1, 2, 3]

    both = " AND ".join(f"id <> {n}" for n in range(1, 2001))
    assert select(both) == [0]


def test_parts_that_share_a_node_are_worked_out_once():
    """Without that, what follows would take 4 to the power of 20 steps."""
    text = "priority"
    for _ in range(20):
        text = f"if({text} BETWEEN 0 AND 9, 1, 2)"

    assert select(f"{text} = 1") == [0, 1, 2, 3]
