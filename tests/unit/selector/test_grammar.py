"""What conditions and choices mean."""

import pytest

from tests.unit.selector.selector_table import select


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("priority > 1", [0]),
        ("priority > 1 AND kind = 'a'", [0]),
        ("priority < 0 OR kind = 'a'", [0, 1]),
        ("NOT priority > 1", [1, 3]),
        ("! (priority > 1)", [1, 3]),
        ("priority == 5", [0]),
        ("priority != 5", [1, 3]),
        ("priority <=> NULL", [2]),
        ("priority <=> 5", [0]),
        ("priority IS DISTINCT FROM 5", [1, 2, 3]),
        ("priority IS NOT DISTINCT FROM 5", [0]),
        ("priority = NULL", []),
        ("priority IS NULL", [2]),
        ("priority IS NOT NULL", [0, 1, 3]),
        ("isnull(priority)", [2]),
        ("isnotnull(priority)", [0, 1, 3]),
        ("priority IN (5, 0, 99)", [0, 3]),
        ("priority NOT IN (5, 0)", [1]),
        ("priority NOT IN (5, NULL)", []),
        ("priority IN (5, NULL) IS NULL", [1, 2, 3]),
        ("priority BETWEEN -7 AND 0", [1, 3]),
        ("priority NOT BETWEEN -7 AND 0", [0]),
        ("ok", [0]),
        ("NOT ok", [1]),
        ("ok IS TRUE", [0]),
        ("ok IS NOT TRUE", [1, 2, 3]),
        ("ok IS FALSE", [1]),
        ("ok = (priority > 1)", [0, 1]),
        ("true", [0, 1, 2, 3]),
        ("NULL", []),
        ("1 + 1 = 2", [0, 1, 2, 3]),
        ("'a' > 'b'", []),
    ],
)
def test_conditions(text, ids):
    assert select(text) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("CASE WHEN priority > 0 THEN 'p' WHEN priority < 0 THEN 'n' ELSE 'z' END = 'n'", [1]),
        ("CASE WHEN priority > 0 THEN 'p' END IS NULL", [1, 2, 3]),
        ("CASE priority WHEN 5 THEN true END", [0]),
        ("if(ok, priority, 1) = 5", [0]),
        ("if(ok, priority, 1) = 1", [1, 2, 3]),
        ("coalesce(priority, 9) = 9", [2]),
        ("nvl(ok, true)", [0, 2, 3]),
        ("ifnull(priority, 9.5) = 9.5", [2]),
        ("nullif(priority, 5) IS NULL", [0, 2]),
    ],
)
def test_choices(text, ids):
    assert select(text) == ids
