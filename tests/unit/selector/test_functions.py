"""Functions of texts and of times."""

import pytest

from tests.unit.selector.selector_table import select


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("lower(kind) = 'ab%c'", [1]),
        ("upper(kind) = 'A'", [0]),
        ("length(kind) = 5", [3]),
        ("length(raw) = 2", [0]),
        ("trim(kind) = 'a\nb'", [3]),
        ("ltrim(kind) = 'a\nb '", [3]),
        ("rtrim(kind) = ' a\nb'", [3]),
        ("trim(BOTH 'c' FROM kind) = 'Ab%'", [1]),
        ("trim(LEADING 'A' FROM kind) = 'b%c'", [1]),
        ("kind LIKE 'A%'", [1]),
        ("kind NOT LIKE 'A%'", [0, 3]),
        ("kind LIKE '%b%'", [1, 3]),
        ("kind LIKE 'Ab\\%c'", [1]),
        ("kind LIKE 'Ab!%c' ESCAPE '!'", [1]),
        ("kind LIKE '_'", [0]),
        ("kind LIKE NULL", []),
        ("kind ILIKE 'aB%'", [1]),
        ("kind RLIKE '^A.%'", [1]),
        ("regexp_like(kind, '^A.%')", [1]),
        ("startswith(kind, 'A')", [1]),
        ("endswith(kind, ' ')", [3]),
        ("contains(kind, '%')", [1]),
        ("substring(kind, 2, 2) = 'b%'", [1]),
        ("substr(kind, -2) = '%c'", [1]),
        ("substring(kind, -2, 2) = '%c'", [1]),
        ("substring(kind, -2, 9) = '%c'", [1]),
        ("substring(kind, -5, 2) = 'A'", [1]),
        ("substring(kind, 0, 1) = 'a'", [0]),
        ("concat(kind, '-', priority) = 'a-5'", [0]),
        ("kind || group = 'ait''s'", [0]),
        ("kind || NULL IS NULL", [0, 1, 2, 3]),
        ("group = 'it\\'s'", [0]),
        ('`group` = "it\'s"', [0]),
    ],
)
def test_texts(text, ids):
    assert select(text) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("year(at) = 1969", [1]),
        ("month(day) = 1", [0]),
        ("day(day) = 31", [0, 1]),
        ("dayofmonth(at) = 31", [0, 1]),
        ("hour(at) = 23", [1]),
        ("minute(at) = 30", [0]),
        ("second(at) = 59", [1]),
        ("CAST(at AS DATE) = day", [0, 1]),
        ("to_date(at) = day", [0, 1]),
        ("CAST(day AS TIMESTAMP) = '2024-01-31'", [0]),
        ("CAST(at AS BIGINT) = -1", [1]),
        ("CAST(at AS DOUBLE) < 0", [1]),
        ("CAST(0 AS TIMESTAMP) > at", [1]),
    ],
)
def test_moments_are_in_utc(text, ids):
    assert select(text) == ids
