"""What conditions and choices mean, and faults that are found in them, with their positions."""

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selector import Selector
from tests.unit.selector.selector_table import fault, select


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


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("knd = 'a'", 1, "there is no column 'knd'; did you mean 'kind'?"),
        ("zzz = 'a'", 1, "there is no column 'zzz'. There are id, priority"),
        ("box.ww = 1", 5, "box has no field 'ww'; did you mean 'w'?"),
        ("box.w.x = 1", 7, "box.w has no field 'x'"),
        ("orders.priority = 1", 1, "there is no column 'orders'"),
        ("lowr(kind) = 'a'", 1, "the function lowr is not allowed; did you mean 'lower'?"),
        ("priority", 1, "a condition is needed here, not int32"),
        ("ok AND priority", 8, "a condition is needed here, not int32"),
        ("NOT priority", 5, "a condition is needed here, not int32"),
        ("if(priority, ok, ok)", 4, "a condition is needed here, not int32"),
        ("priority > 'abc'", 12, "'abc' is not a number"),
        ("priority IN (1, 'z')", 17, "'z' is not a number"),
        ("priority BETWEEN 1 AND 'z'", 24, "'z' is not a number"),
        ("at > 'x' AND kind = 'x'", 6, "'x' is not a timestamp such as '2024-01-31 12:30:00'"),
        ("at > '2024-13-01'", 6, "'2024-13-01' is not a timestamp"),
        ("day = '2024-02-30'", 7, "'2024-02-30' is not a date such as '2024-01-31'"),
        ("day = DATE 'x'", 12, "'x' is not a date"),
        ("ok = 'maybe'", 6, "'maybe' is not a boolean, true or false"),
        ("CAST('abc' AS INT) = 1", 6, "'abc' is not a number"),
        ("kind = 5", 1, "string and int32 cannot be compared; CAST one of them"),
        ("kind > priority", 1, "string and int32 cannot be compared"),
        ("ok > 5", 1, "bool and int32 cannot be compared"),
        ("CASE WHEN ok THEN 1 ELSE 'a' END = 1", 26, "'a' is not a number"),
        ("kind + 1 > 2", 1, "+ takes numbers, not string"),
        ("priority > 1 AND -kind > 2", 19, "- takes numbers, not string"),
        ("lower(priority) = 'a'", 7, "lower takes a text, not int32"),
        ("priority LIKE 'a'", 1, "LIKE takes a text, not int32"),
        ("tags = tags", 1, "= does not take list<"),
        ("tags IN (NULL)", 1, "values of list<"),
        ("CAST(box AS STRING) = 'a'", 6, "there is no CAST from struct<"),
        ("CAST(x AS STRING) = 'a'", 6, "there is no CAST from double to string"),
        ("CAST(kind AS ARRAY<INT>) IS NULL", 6, "there is no CAST to ARRAY<INT>"),
        ("CAST(price AS DECIMAL(50, 2)) > 1", 6, "there is no DECIMAL(50, 2)"),
        ("x DIV 2 = 1", 1, "DIV takes whole numbers"),
        ("round(x, priority) = 1", 10, "round takes a constant whole number here"),
        ("round(x, 99) = 1", 1, "round takes -18 to 38 places, not 99"),
        ("substring(kind) = 'a'", 1, "substring does not take 1 arguments"),
        ("greatest(priority) = 1", 1, "greatest does not take 1 arguments"),
        ("kind LIKE kind", 11, "LIKE takes a constant text here"),
        ("kind LIKE 'a\\\\\\\\\\\\'", 11, "the pattern ends with its escape character"),
        ("kind LIKE 'a' ESCAPE '!!'", 1, "ESCAPE takes one character"),
        ("kind RLIKE '(?=x)'", 12, "Invalid regular expression: invalid perl operator"),
        ("kind RLIKE '((a{999}){999}){999}'", 12, "Invalid regular expression"),
        ("priority IN (size)", 14, "IN takes constant values"),
        ("priority IN ()", 1, "IN needs at least one value"),
        ("kind IS 'a'", 1, "IS takes NULL, TRUE or FALSE"),
        ("isnan(priority)", 7, "isnan takes a double, not int32"),
        ("priority = " + "1" * 80, 12, "a number of 80 digits is too long"),
        ("x > 1e400", 5, "'1e400' is not a number that a double can hold"),
        ("raw = X'0'", 7, "X'0' does not have two digits for each byte"),
        ("year() = 1", 1, "something is missing here"),
        ("priority >", 10, "something is missing here"),
        ("priority > 1)", 13, "this was not expected"),
        ("(priority > 1", 13, "expecting )"),
        ("kind = 'a", 7, "not closed, missing '"),
        ("`kind = 1", 1, "not closed, missing `"),
        ("kind = 'a' AS z", 12, "this was not expected"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(text, column, message):
    shown = fault(text)

    assert f"line 1, column {column}: {message}" in shown


def test_columns_that_differ_in_case_only_must_be_named_exactly():
    schema = pa.schema([("a", pa.int32()), ("A", pa.string())])

    assert Selector.parse("A = 'x'", schema).columns == {"A"}
    with pytest.raises(BadSelector, match="there is no column 'Bb'"):
        Selector.parse("Bb = 1", pa.schema([("bb", pa.int32()), ("BB", pa.int32())]))
