"""An unknown database fails loudly."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from queue_core.catalog import dialect
from queue_core.errors import BadOption

STRANGER = SimpleNamespace(dialect=SimpleNamespace(name="oracle"))


def test_a_database_without_a_class_is_refused():
    with pytest.raises(NotImplementedError, match="oracle"):
        dialect.of(STRANGER)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("oracle://host/db", "not oracle"),
        ("sqlite://", "is not a file"),
        ("sqlite:///:memory:", "is not a file"),
        ("nonsense", "is not a database URL"),
        ("postgresql+psycopg://bob:p@hunter1@host/x", r"'postgresql\+psycopg://\*\*\*@host/x' has"),
    ],
)
def test_an_unsuitable_url_is_refused(url, expected):
    with pytest.raises(BadOption, match=expected):
        dialect.connect(url)


def test_only_the_class_of_the_database_in_use_is_imported():
    script = (
        "import sys; from queue_core.catalog import dialect; "
        "dialect.connect('sqlite:////nowhere/catalog.db'); "
        "print([name for name in sys.modules if 'postgres' in name or 'psycopg' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
