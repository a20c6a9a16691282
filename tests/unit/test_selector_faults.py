"""A selector comes from a user: what it may not say, and how a fault is shown."""

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selector import Order, Selector
from tests.unit.test_selector import SCHEMA


def fault(text, kind=Selector):
    with pytest.raises(BadSelector) as caught:
        kind.parse(text, SCHEMA)
    return str(caught.value)


def test_a_fault_is_shown_where_it_is():
    assert fault("priority > 5 AND\n  prioritty < 9") == (
        "selector, line 2, column 3: there is no column 'prioritty'; did you mean 'priority'?\n"
        "    prioritty < 9\n"
        "    ^^^^^^^^^"
    )


def test_of_a_long_line_the_part_around_the_fault_is_shown():
    text = " OR ".join(["priority = 1"] * 100) + " OR knd = 'a'"

    shown = fault(text)

    assert "line 1, column 1601" in shown
    assert len(max(shown.splitlines(), key=len)) < 140
    excerpt, carets = shown.splitlines()[1:]
    assert excerpt[carets.index("^") : carets.rindex("^") + 1] == "knd"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("knd = 'a'", 1, "there is no column 'knd'; did you mean 'kind'?"),
        ("zzz = 'a'", 1, "there is no column 'zzz'; there are id, priority"),
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


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("priority IN (SELECT 1)", 14, "a subquery is not allowed"),
        ("EXISTS(SELECT 1)", 8, "a subquery is not allowed"),
        ("(SELECT max(priority) FROM t) = 1", 2, "a subquery is not allowed"),
        ("SELECT * FROM t", 1, "this was not expected"),
        ("count(*) > 1", 1, "the aggregate count is not allowed"),
        ("max(priority) > 1", 1, "the aggregate max is not allowed"),
        ("sum(size) OVER (PARTITION BY kind) > 1", 1, "a window is not allowed"),
        ("*", 1, "* is not allowed"),
        ("box.*", 1, "* is not allowed"),
        ("read_files('/etc/passwd') = 'x'", 1, "the function read_files is not allowed"),
        ("java_method('java.lang.Runtime', 'x') = 1", 1, "the function java_method is not allowed"),
        ("input_file_name() = 'x'", 1, "the function input_file_name is not allowed"),
        ("kind = 'a' OR now() > at", 15, "the function now is not allowed"),
        ("at > current_timestamp", 6, "the function current_timestamp is not allowed"),
        ("rand() > 0.5", 1, "the function rand is not allowed"),
        ("priority > ?", 12, "a parameter is not allowed"),
        ("priority > :p", 12, "a parameter is not allowed"),
        ("priority > @p", 12, "a parameter is not allowed"),
        ("priority > ${x}", 12, "a parameter is not allowed"),
        ("priority > 1; DROP TABLE x", 13, "a ';' is not allowed here"),
        ("priority > 1;", 13, "a ';' is not allowed here"),
        ("priority > 1 -- AND ok", 14, "a comment is not allowed here"),
        ("priority /* > 1 */ > 2", 10, "a comment is not allowed here"),
        ("-- ok", 1, "a comment is not allowed here"),
        ("DROP TABLE x", 1, "this was not expected"),
        ("tags[0] = 'a'", 1, "BRACKET is not allowed"),
        ("at - INTERVAL 1 DAY > at", 6, "INTERVAL is not allowed"),
        ("transform(tags, t -> t) IS NULL", 1, "the function transform is not allowed"),
        ("kind LIKE ANY ('a', 'b')", 11, "ANY is not allowed"),
        ("lower(DISTINCT kind) = 'a'", 7, "DISTINCT is not allowed"),
        ("priority BETWEEN SYMMETRIC 1 AND 2", 1, "BETWEEN with 'symmetric' is not allowed"),
        ("priority & 1 = 1", 1, "BITWISEAND is not allowed"),
    ],
)
def test_what_is_not_a_condition_over_columns_is_refused(text, column, message):
    shown = fault(text)

    assert f"line 1, column {column}: {message}" in shown


@pytest.mark.parametrize("kind", [Selector, Order])
def test_what_would_make_the_parser_work_hard_is_refused(kind):
    name = kind.__name__.lower()

    assert f"the {name} is empty" in fault(" \n", kind)
    assert f"the {name} has 70001 characters; use at most 65536" in fault("p" * 70_001, kind)
    assert "nested too deeply" in fault("(" * 30 + "priority" + ")" * 30 + " > 1", kind)
    assert "nested too deeply" in fault("NOT " * 3000 + "ok", kind)
    assert "nested too deeply" in fault("- " * 3000 + "priority > 1", kind)
    assert "nested too deeply" in fault("CASE WHEN " * 500 + "ok", kind)
    assert "nested too deeply" in fault("priority" + " + 1" * 3000 + " > 1", kind)
    assert "nested too deeply" in fault("priority" + "::int" * 3000 + " > 1", kind)
    with pytest.raises(BadSelector, match=f"a {name} is a text, not int"):
        kind.parse(5, SCHEMA)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("prioritty", 1, "there is no column 'prioritty'; did you mean 'priority'?"),
        ("priority DESC, sise", 16, "there is no column 'sise'; did you mean 'size'?"),
        ("priority,", 9, "something is missing at the comma"),
        (", priority", 1, "something is missing at the comma"),
        ("priority DESC size", 10, "this was not expected"),
        ("priority NULLS", 10, "this was not expected"),
        ("tags", 1, "values of list<"),
        ("box DESC", 1, "values of struct<"),
        ("1", 1, "an order needs a column"),
        ("priority, 'a' DESC", 11, "an order needs a column"),
        ("MAX(priority) DESC", 1, "MAX is a direction; leave DESC out"),
        ("SUM(priority)", 1, "the aggregate sum is not allowed"),
        ("rand()", 1, "the function rand is not allowed"),
        ("(SELECT 1)", 2, "a subquery is not allowed"),
        ("priority -- DESC", 10, "a comment is not allowed here"),
        ("priority; size", 9, "a ';' is not allowed here"),
    ],
)
def test_faults_of_an_order_are_shown_alike(text, column, message):
    assert f"order, line 1, column {column}: {message}" in fault(text, Order)


def test_columns_that_differ_in_case_only_must_be_named_exactly():
    schema = pa.schema([("a", pa.int32()), ("A", pa.string())])

    assert Selector.parse("A = 'x'", schema).columns == {"A"}
    with pytest.raises(BadSelector, match="there is no column 'Bb'"):
        Selector.parse("Bb = 1", pa.schema([("bb", pa.int32()), ("BB", pa.int32())]))
