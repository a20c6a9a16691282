"""The driver of PostgreSQL is one that works."""

import tomllib
from pathlib import Path

import psycopg
import pytest
from packaging.requirements import Requirement

from queue_core.catalog.databases.bounded_waits import OLDEST_PSYCOPG
from queue_core.catalog.dialect import connect
from queue_core.errors import BadOption

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


def test_the_oldest_driver_is_the_declared_one():
    (declared,) = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["postgres"]
    requirement = Requirement(declared)

    assert requirement.specifier.contains(".".join(map(str, OLDEST_PSYCOPG)))
    assert not requirement.specifier.contains("3.2.10")


@pytest.mark.parametrize("version", ["3.1.20", "3.2.10"])
def test_an_older_driver_is_refused_by_name(monkeypatch, version):
    monkeypatch.setattr(psycopg, "__version__", version)

    with pytest.raises(BadOption, match=rf"needs psycopg 3\.2\.11 or later, and this is {version}"):
        connect("postgresql+psycopg://nobody@127.0.0.1:1/none")
