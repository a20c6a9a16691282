"""A selector comes from a user: forbidden parts, and the report of a fault."""

import sys

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selector import Order, Selector
from tests.unit.selector.selector_table import SCHEMA, fault


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


def test_the_recursion_limit_of_a_deep_caller_is_an_error_of_ours():
    def deep(frames):
        if frames:
            return deep(frames - 1)
        return Selector.parse("(" * 20 + "priority" + ")" * 20 + " > 1", SCHEMA)

    used = len(__import__("inspect").stack())
    with pytest.raises(BadSelector, match="nested too deeply"):
        deep(sys.getrecursionlimit() - used - 150)


@pytest.mark.parametrize("name", ["call", "show", "execute", "vacuum", "explain", "rename"])
def test_a_column_may_have_the_name_of_a_command(name):
    schema = pa.schema([(name, pa.int64())])
    rows = pa.table({name: [1, 2, 3]}, schema)

    for text in (f"{name} > 1", f"1 < {name}", f"({name} > 1)", f"`{name}` > 1"):
        assert Selector.parse(text, schema).mask(rows).to_pylist() == [False, True, True]
    with pytest.raises(BadSelector, match=f"column {len(name) + 9}: there is no column 'nmae'"):
        Selector.parse(f"{name} > 1 OR nmae = 1", schema)
    assert Order.parse(f"{name} DESC", schema)
