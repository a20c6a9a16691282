"""Random selectors, each as SQL and as a Python function of one row that says what it means.

The functions follow SQL's three-valued logic with None for NULL, and know nothing of Arrow.
"""

import math
import operator
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import cmp_to_key

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("box", pa.struct([("v", pa.int32())])),
    ]
)
INT64 = range(-(2**63), 2**63)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_small = st.integers(-3, 3)
_big = st.one_of(_small, st.sampled_from([2**63 - 1, -(2**63), 2**62, 3_037_000_500, -(2**53) - 1]))
_text = st.text(alphabet="abAé%_\\ \n", max_size=3)
_double = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.5, 1e300, math.inf, -math.inf, math.nan, 0.1])
)
_cents = st.integers(-999, 999).map(lambda cents: Decimal(cents) / 100)
_moment = st.sampled_from([-1, 0, 1, 86_400_000_000, 1_700_000_000_123_456]).map(
    lambda us: EPOCH + timedelta(microseconds=us)
)
_day = st.sampled_from([date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)])

_values = {
    "n": st.one_of(_small, st.sampled_from([2**31 - 1, -(2**31)])),
    "big": _big,
    "s": _text,
    "f": _double,
    "d": _cents,
    "b": st.booleans(),
    "t": _moment,
    "day": _day,
    "raw": st.binary(max_size=2),
    "box": st.fixed_dictionaries({"v": st.none() | _small}),
}


def rows(max_size=8):
    """Rows of SCHEMA as dicts."""
    row = st.fixed_dictionaries({name: st.none() | values for name, values in _values.items()})
    return st.lists(row, max_size=max_size)


def table(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


# --- what SQL means, for one row ------------------------------------------------------------


def null_if_any(function):
    """NULL when an argument is."""
    return lambda *args: None if any(arg is None for arg in args) else function(*args)


def total(value):
    """A key by which NaN equals itself and is greater than all else."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def comparison(sign):
    return null_if_any(lambda x, y: COMPARISONS[sign](total(x), total(y)))


def same(x, y):
    return (x is None and y is None) or comparison("=")(x, y) is True


def conjunction(x, y):
    if x is False or y is False:
        return False
    return None if x is None or y is None else True


def disjunction(x, y):
    return negation(conjunction(negation(x), negation(y)))


def negation(x):
    return None if x is None else not x


def member(x, values):
    found = [comparison("=")(x, value) for value in values]
    return True if True in found else None if None in found or x is None else False


def like(text, pattern):
    """By trying every split, so as to share nothing with regular expressions."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    literal = pattern[0] == "\\"
    head, rest = (pattern[1], pattern[2:]) if literal else (pattern[0], pattern[1:])
    return (
        bool(text) and (text[0] == head or (head == "_" and not literal)) and like(text[1:], rest)
    )


def in_int64(value):
    return value if value in INT64 else None


def quotient(x, y):
    """Towards zero."""
    return None if y == 0 else in_int64(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))


def remainder(x, y):
    return None if y == 0 else (abs(x) % abs(y)) * (-1 if x < 0 else 1)


def divided(x, y):
    if float(y) == 0:
        return None
    try:
        return float(x) / float(y)
    except OverflowError:
        return math.inf


def rounded(value, places):
    return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


# --- expressions: pairs of SQL and what it means ----------------------------------------------


def lift(sql, function, *parts):
    """An expression made of others."""
    return sql.format(*[part[0] for part in parts]), lambda row: function(
        *[part[1](row) for part in parts]
    )


def column(name, sql=None):
    return st.just((sql or name, lambda row: row[name]))


def constant(values, sql):
    return values.map(lambda value: (sql(value), lambda row: value))


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def written(value):
    if math.isnan(value) or math.isinf(value):
        return f"CAST('{value}' AS DOUBLE)"
    return f"CAST('{value!r}' AS DOUBLE)"


null = st.just(("NULL", lambda row: None))

whole_numbers = st.deferred(
    lambda: st.one_of(
        column("n"),
        column("big"),
        st.just(("box.v", lambda row: row["box"] and row["box"]["v"])),
        constant(_big, str),
        st.builds(
            lambda sign, x, y: lift(
                f"({{}} {sign} {{}})",
                null_if_any(
                    {
                        "+": lambda x, y: in_int64(x + y),
                        "-": lambda x, y: in_int64(x - y),
                        "*": lambda x, y: in_int64(x * y),
                        "DIV": quotient,
                        "%": remainder,
                    }[sign]
                ),
                x,
                y,
            ),
            st.sampled_from(["+", "-", "*", "DIV", "%"]),
            whole_numbers,
            whole_numbers,
        ),
        st.builds(lambda x: lift("-({})", null_if_any(lambda v: in_int64(-v)), x), whole_numbers),
        st.builds(
            lambda x: lift("abs({})", null_if_any(lambda v: in_int64(abs(v))), x), whole_numbers
        ),
        st.builds(lambda x: lift("length({})", null_if_any(len), x), texts),
        st.builds(
            lambda x, y: lift("coalesce({}, {})", lambda x, y: y if x is None else x, x, y),
            whole_numbers,
            whole_numbers,
        ),
        st.builds(
            lambda c, x, y: lift(
                "CASE WHEN {} THEN {} ELSE {} END", lambda c, x, y: x if c else y, c, x, y
            ),
            conditions,
            whole_numbers,
            whole_numbers,
        ),
        st.builds(
            lambda x, y: lift(
                "greatest({}, {})",
                lambda x, y: max((v for v in (x, y) if v is not None), default=None),
                x,
                y,
            ),
            whole_numbers,
            whole_numbers,
        ),
        st.builds(lambda x: lift("year({})", null_if_any(lambda t: t.year), x), moments),
        st.builds(lambda x: lift("hour({})", null_if_any(lambda t: t.hour), x), moments),
        st.builds(
            lambda x: lift(
                "CAST({} AS BIGINT)", null_if_any(lambda t: (t - EPOCH) // timedelta(seconds=1)), x
            ),
            moments,
        ),
        st.builds(
            lambda x: lift(
                "CAST({} AS INT)", null_if_any(lambda v: v if -(2**31) <= v < 2**31 else None), x
            ),
            whole_numbers,
        ),
    )
)

texts = st.deferred(
    lambda: st.one_of(
        column("s"),
        constant(_text, quoted),
        st.builds(lambda x: lift("lower({})", null_if_any(str.lower), x), texts),
        st.builds(lambda x: lift("trim({})", null_if_any(lambda v: v.strip(" ")), x), texts),
        st.builds(lambda x, y: lift("{} || {}", null_if_any(operator.add), x, y), texts, texts),
        st.builds(
            lambda x, start, count: lift(
                f"substring({{}}, {start}, {count})",
                null_if_any(lambda v: v[start - 1 : start - 1 + count]),
                x,
            ),
            texts,
            st.integers(1, 3),
            st.integers(0, 3),
        ),
    )
)

doubles = st.deferred(
    lambda: st.one_of(
        column("f"),
        constant(_double, written),
        st.builds(lambda x: lift("CAST({} AS DOUBLE)", null_if_any(float), x), whole_numbers),
        st.builds(lambda x, y: lift("({} / {})", null_if_any(divided), x, y), doubles, doubles),
        st.builds(
            lambda sign, x, y: lift(
                f"({{}} {sign} {{}})",
                null_if_any({"+": operator.add, "-": operator.sub}[sign]),
                x,
                y,
            ),
            st.sampled_from("+-"),
            doubles,
            doubles,
        ),
        st.builds(
            lambda x, y: lift(
                "greatest({}, {})",
                lambda x, y: max((v for v in (x, y) if v is not None), default=None, key=total),
                x,
                y,
            ),
            doubles,
            doubles,
        ),
    )
)

decimals = st.deferred(
    lambda: st.one_of(
        column("d"),
        constant(_cents, "{:.2f}".format),
        st.builds(
            lambda sign, x, y: lift(
                f"({{}} {sign} {{}})",
                null_if_any({"+": operator.add, "-": operator.sub, "*": operator.mul}[sign]),
                x,
                y,
            ),
            st.sampled_from("+-*"),
            column("d") | constant(_cents, "{:.2f}".format),
            column("d") | constant(_cents, "{:.2f}".format),
        ),
        st.builds(
            lambda x: lift("round({}, 1)", null_if_any(lambda v: rounded(v, 1)), x), column("d")
        ),
        st.builds(lambda x: lift("-{}", null_if_any(operator.neg), x), column("d")),
    )
)

moments = column("t") | constant(_moment, lambda t: f"TIMESTAMP '{t.replace(tzinfo=None)}'")
days = st.one_of(
    column("day"),
    constant(_day, lambda day: f"DATE '{day}'"),
    moments.map(lambda t: lift("CAST({} AS DATE)", null_if_any(datetime.date), t)),
)
binaries = column("raw") | constant(st.binary(max_size=2), lambda raw: f"X'{raw.hex()}'")

_kinds = (whole_numbers, texts, doubles, decimals, moments, days, binaries)
anything = st.one_of(*_kinds)
patterns = st.lists(st.sampled_from(["a", "b", "é", "%", "_", "\\%", "\\_"]), max_size=4).map(
    "".join
)


def _comparisons(kind):
    return st.builds(
        lambda sign, x, y: lift(f"{{}} {sign} {{}}", comparison(sign), x, y),
        st.sampled_from(sorted(COMPARISONS)),
        kind,
        kind | null,
    )


def _memberships(name, sql):
    return st.builds(
        lambda x, values, negated: lift(
            f"{{}} {'NOT ' * negated}IN ({', '.join(map(sql, values))})",
            lambda v: negation(member(v, values)) if negated else member(v, values),
            x,
        ),
        column(name),
        st.lists(st.none() | _values[name], min_size=1, max_size=3),
        st.booleans(),
    )


def _or_null(sql):
    return lambda value: "NULL" if value is None else sql(value)


conditions = st.deferred(
    lambda: st.one_of(
        column("b"),
        constant(st.booleans(), str),
        st.one_of(*map(_comparisons, _kinds)),
        st.one_of(*[st.builds(lambda x, y: lift("{} <=> {}", same, x, y), k, k) for k in _kinds]),
        anything.map(lambda x: lift("{} IS NULL", lambda v: v is None, x)),
        anything.map(lambda x: lift("{} IS NOT NULL", lambda v: v is not None, x)),
        st.builds(
            lambda x, low, high: lift(
                "{} BETWEEN {} AND {}",
                lambda x, low, high: conjunction(
                    comparison(">=")(x, low), comparison("<=")(x, high)
                ),
                x,
                low,
                high,
            ),
            whole_numbers,
            whole_numbers,
            whole_numbers,
        ),
        _memberships("n", _or_null(str)),
        _memberships("s", _or_null(quoted)),
        _memberships("f", _or_null(written)),
        _memberships("d", _or_null("{:.2f}".format)),
        _memberships("t", _or_null(lambda t: f"'{t.isoformat()}'")),
        st.builds(
            lambda x, pattern: lift(
                f"{{}} LIKE {quoted(pattern)}", null_if_any(lambda v: like(v, pattern)), x
            ),
            texts,
            patterns,
        ),
        st.builds(
            lambda x, prefix: lift(
                f"startswith({{}}, {quoted(prefix)})",
                null_if_any(lambda v: v.startswith(prefix)),
                x,
            ),
            texts,
            _text,
        ),
        conditions.map(lambda c: lift("({}) IS TRUE", lambda v: v is True, c)),
        conditions.map(lambda c: lift("NOT ({})", negation, c)),
        st.builds(lambda c, d: lift("({}) AND ({})", conjunction, c, d), conditions, conditions),
        st.builds(lambda c, d: lift("({}) OR ({})", disjunction, c, d), conditions, conditions),
    )
)

sortable = st.one_of(*_kinds, column("b"))
key_parts = st.tuples(
    sortable, st.sampled_from(["", " ASC", " DESC"]), st.sampled_from(["", " NULLS FIRST"])
)


def sort_rows(rows, keys):
    """The numbers of the rows in the order of the keys, by comparing two at a time."""

    def compare(left, right):
        for (_, meaning), direction, nulls in keys:
            x, y = meaning(rows[left]), meaning(rows[right])
            if x is None or y is None:
                difference = (x is None) - (y is None)
                difference = -difference if nulls else difference
            else:
                difference = (total(x) > total(y)) - (total(x) < total(y))
                difference = -difference if "DESC" in direction else difference
            if difference:
                return difference
        return 0

    return sorted(range(len(rows)), key=cmp_to_key(compare))
