"""Invalid texts of policies: each is refused, with the position of the fault."""

from __future__ import annotations

import pyarrow as pa
import pytest

from queue_core.errors import BadOption
from queue_core.policies.parsing import parse

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("kind", pa.string()),
        ("n", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    ]
)


FAULTS = [
    ("latst", "column 1: policy 'latst' is unknown; did you mean 'latest'"),
    ("latest(n)", "no arguments are expected"),
    ("latest n", r"column 8: a '\(' is expected"),
    ("merge(sum(n)", "column 11: a '\\)' is expected"),
    ("latest(order => eldest)", "column 8: only order => newest or order => oldest"),
    ("merge()", "name the columns to merge"),
    ("merge(n)", "column 7: a call is expected"),
    ("merge(avg(n))", "'avg' is unknown"),
    ("merge(sum(kind))", r"sum\(kind\): sum is not defined for string columns"),
    ("merge(sum(m))", "column 11: the queue has no column 'm'"),
    ("merge(sum(n), max(n))", "'n' is named twice"),
    ("merge(last(key))", "'key' is the key"),
    ("merge(sum('n'))", "column 11: the name of a column is expected"),
    ("drop_duplicates(kind, )", "something is missing at the comma"),
    ("drop_duplicates", "'tags' of type list"),
    ("annihilate(kind = 'on')", "2 arguments are expected, not 1"),
    ("annihilate(kind = 'on', knd = 'off')", "column 25"),
    ("confirm(kind = 'on', order => oldest)", "this policy has a fixed order"),
    ("confirm(read_file('/etc/passwd') = 'x')", "column 9"),
    ("confirm(kind)", "policy, line 1, column 9: a condition is needed"),
    ("latest; latest", "a ';' is not allowed here"),
    ("latest -- really", "a comment is not allowed here"),
    ("", "the policy is empty"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_an_invalid_text_is_refused(text, message):
    with pytest.raises(BadOption, match=message):
        parse(text, SCHEMA, "key")
