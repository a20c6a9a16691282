"""An error of a database is translated by its code, and says whether anything was changed."""

import re
from types import SimpleNamespace

import pytest

from queue_core.catalog.databases.postgresql import Postgresql
from queue_core.catalog.databases.sqlite import Sqlite
from queue_core.errors import CatalogUnavailable, DamagedCatalog

FSYNC = 10 | 4 << 8
SHORT_WRITE = 10 | 3 << 8


class Cause(Exception):
    """An error of a driver."""


def failed(code, *, lost=False):
    """An error of SQLAlchemy around one of a driver, by the kind of its code."""
    cause = Cause("it  failed")
    setattr(cause, "sqlstate" if isinstance(code, str) else "sqlite_errorcode", code)
    return SimpleNamespace(orig=cause, connection_invalidated=lost)


@pytest.mark.parametrize(
    ("errors", "code", "kind", "text"),
    [
        (Sqlite.errors, 5 | 1 << 8, CatalogUnavailable, r"is busy.*; try again later$"),
        (Sqlite.errors, 13, CatalogUnavailable, "full disk"),
        (Sqlite.errors, 11 | 2 << 8, DamagedCatalog, "is damaged"),
        (Sqlite.errors, 1, DamagedCatalog, r"lacks a table or a column \(it failed\)"),
        (Sqlite.errors, 21, CatalogUnavailable, r"failed \(it failed\)"),
        (Postgresql.errors, "40001", CatalogUnavailable, r"failed \(it failed\)"),
        (Postgresql.errors, "XX001", DamagedCatalog, "is damaged"),
        (Postgresql.errors, "42P01", DamagedCatalog, "lacks a table.* search_path .* only if"),
        (Postgresql.errors, "3F000", CatalogUnavailable, "check the search_path"),
        (Postgresql.errors, "42P05", CatalogUnavailable, "set pool_mode=session"),
        (Postgresql.errors, "26000", CatalogUnavailable, "set pool_mode=session"),
        (Postgresql.errors, "", CatalogUnavailable, r"failed \(it failed\)"),
    ],
)
def test_the_code_decides(errors, code, kind, text):
    error = errors.translated(failed(code), "shop")

    assert type(error) is kind
    assert error.args[0].startswith("catalog shop ")
    assert "; nothing was changed" in error.args[0]
    assert re.search(text, error.args[0])


@pytest.mark.parametrize(
    ("errors", "code", "expected"),
    [
        (Sqlite.errors, 5 | 2 << 8, True),
        (Sqlite.errors, 13, False),
        (Postgresql.errors, "40P01", True),
        (Postgresql.errors, "23505", False),
    ],
)
def test_some_transactions_are_tried_again(errors, code, expected):
    assert errors.can_retry(failed(code)) is expected


@pytest.mark.parametrize(
    ("errors", "code", "lost", "unknown"),
    [
        (Sqlite.errors, FSYNC, False, True),
        (Sqlite.errors, SHORT_WRITE, False, False),
        (Sqlite.errors, 13, False, False),
        (Postgresql.errors, "", True, True),
        (Postgresql.errors, "40001", False, False),
    ],
)
def test_a_failed_commit_may_have_succeeded(errors, code, lost, unknown):
    committed = errors.translated(failed(code, lost=lost), "shop", committing=True)
    before = errors.translated(failed(code, lost=lost), "shop")

    assert committed.outcome_unknown is unknown
    assert ("check before you repeat it" in str(committed)) is unknown
    assert not before.outcome_unknown
