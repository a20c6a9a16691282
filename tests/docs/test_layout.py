"""Checks beyond import-linter: public names, declared libraries, loaded libraries, the lock."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from dataclasses import fields
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from queue_core.selection.request import FireRequest
from tests.tree import PACKAGES, ROOT

#: Libraries that no import loads. Pandas takes a third of a second; some calls of Arrow load it.
NEVER = {"boto3", "kazoo", "moto", "pandas"}
#: Modules that a streaming query does not wait for when it starts.
NOT_TO_START = {
    "pyarrow.fs",
    "queue_core.policies.inputs",
    "queue_core.queue",
    "queue_core.waiting.smart",
    "queue_core.upkeep.tasks.runner",
}


#: Entries at the root of the core, and modules in one folder.
MOST_AT_THE_ROOT, MOST_IN_A_FOLDER = 20, 40
CORE = ROOT / "queue_core"
ROOMS = sorted(file.parent for file in CORE.glob("*/**/__init__.py"))


def test_the_core_has_few_rooms():
    entries = [each.name for each in CORE.iterdir() if each.name != "__pycache__"]

    assert len(entries) <= MOST_AT_THE_ROOT, sorted(entries)


def test_no_folder_is_full():
    folders = {file.parent for name in PACKAGES for file in (ROOT / name).rglob("*.py")}

    assert {
        str(folder): count
        for folder in folders
        if (count := len(list(folder.glob("*.py")))) > MOST_IN_A_FOLDER
    } == {}


def test_each_class_has_a_name_of_its_own():
    homes = defaultdict(list)
    for name in PACKAGES:
        for file in (ROOT / name).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    homes[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")

    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


#: Functions that users call with arguments by name: each argument is an option of its own.
FACES = {
    "ConsumerPool.__init__",
    "ConsumerTarget.__init__",
    "IgnisManager.__init__",
    "console",
    "consume",
    "handle",
    "work",
}


def test_only_faces_have_many_parameters():
    found = set()
    for name in PACKAGES:
        for file in (ROOT / name).rglob("*.py"):
            tree = ast.parse(file.read_text())
            owners = {
                id(each): f"{node.name}."
                for node in ast.walk(tree)
                if isinstance(node, ast.ClassDef)
                for each in node.body
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    arguments = node.args
                    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                    if len([each for each in given if each.arg not in ("self", "cls")]) > 12:
                        found.add(owners.get(id(node), "") + node.name)

    assert found == FACES


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(CORE)))
def test_a_room_says_what_it_may_import_and_what_it_must_not_do(room):
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""

    assert "ay import" in text
    assert re.search(r"[Mm]ust not|No room may", text)


def test_a_request_has_few_fields():
    assert len(fields(FireRequest)) <= 17


#: What a module outside of `catalog` may import from SQLAlchemy: a transaction that it passes on,
#: events of an engine, and errors. None of it is a part of a statement.
NO_SQL = {
    "Connection",
    "DBAPIError",
    "Engine",
    "ExceptionContext",
    "SQLAlchemyError",
    "event",
}


TABLES = {f"queue_core.catalog.{name}" for name in ("tables", "holder_tables", "record_tables")}


def builds_sql(file: Path) -> bool:
    """Whether a module imports parts of statements, or the tables, or sends a statement."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import(names=names) if any(a.name.startswith("sqlalchemy") for a in names):
                return True
            case ast.ImportFrom(module=str(module)) if module in TABLES:
                return True
            case ast.ImportFrom(module="queue_core.catalog", names=names):
                if any(f"queue_core.catalog.{alias.name}" in TABLES for alias in names):
                    return True
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("sqlalchemy"):
                if {alias.name for alias in names} - NO_SQL:
                    return True
            case ast.Attribute(value=ast.Name(id="connection"), attr=sent):
                if sent in ("execute", "scalar", "scalars"):
                    return True
    return False


def test_only_the_catalog_builds_sql():
    files = (file for name in PACKAGES for file in (ROOT / name).rglob("*.py"))
    outside = [file for file in files if CORE / "catalog" not in file.parents]

    assert [str(file.relative_to(ROOT)) for file in outside if builds_sql(file)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_sorted_and_exist(package):
    module = importlib.import_module(package)

    assert list(module.__all__) == sorted(set(module.__all__))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


#: Libraries that some modules leave unloaded, besides those of `NEVER`.
UNLOADED = {
    "queue_core": {"pyspark", "sqlalchemy"},
    "queue_core.segments.reader": {"pyspark", "sqlalchemy"},
    "queue_core.segments.format": {"pyspark", "sqlalchemy"},
    "queue_core.segments.stager": {"pyspark", "sqlalchemy"},
    "queue_core.segments.storage": {"pyspark", "sqlalchemy"},
    "queue_core.store": {"pyspark", "sqlglot"},
    "pyspark_ignis.source": {"pyarrow", "sqlalchemy"},
    "ignis_cli.app": {"pyarrow", "pyspark", "sqlalchemy"},
    "ignis_sink.load": {"sqlalchemy"},
    "ignis_sink.planning": {"sqlglot"},
    "ignis_sink.publishing": {"sqlglot"},
    "ignis_sink.settle": {"sqlalchemy"},
    "ignis_source.batch": {"sqlalchemy"},
    "ignis_source.stream": {"sqlalchemy"},
    "ignis_source.session": {"sqlglot", *NOT_TO_START},
    "ignis_source.acquiring": {"sqlglot", *NOT_TO_START},
    "ignis_source.browsing": {"sqlglot", *NOT_TO_START},
}


@pytest.mark.nightly
@pytest.mark.parametrize("module", UNLOADED)
def test_import_leaves_heavy_libraries_unloaded(module):
    """Executors start many processes, and each needless library slows every start."""
    script = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()

    assert module in loaded
    assert (UNLOADED[module] | NEVER).isdisjoint(loaded)


def imported_libraries():
    """Return the third-party libraries that the packages import, at any depth."""
    names = set()
    for file in (file for package in PACKAGES for file in ROOT.joinpath(package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names - {*PACKAGES}


def plain(requirement):
    """Return the name of a distribution in its normal form."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def test_every_library_that_is_imported_is_declared():
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for_users = [extras[name] for name in extras if name != "dev"]
    declared = {plain(item) for group in (project["dependencies"], *for_users) for item in group}
    # Airflow has an environment of its own, so nothing here provides it.
    providers = {**packages_distributions(), "airflow": ["apache-airflow"]}

    undeclared = {
        name
        for name in imported_libraries()
        if declared.isdisjoint(map(plain, providers.get(name, [name])))
    }

    assert undeclared == set()


def test_the_lock_file_has_a_version_of_each_library_that_the_tests_install():
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    (own,) = (Requirement(item) for item in needed if plain(item) == "ignis-queue")
    assert own.extras == {"spark", "cli", "postgres", "connect", "zookeeper", "console", "metrics"}
    for name in own.extras:
        needed += project["optional-dependencies"][name]
    first, *lines = ROOT.joinpath("requirements-dev.lock").read_text().splitlines()
    locked = {line.partition("==")[0] for line in lines if "==" in line}

    assert re.fullmatch(r"# python 3\.\d+", first), "scripts/setup.sh reads the version there"
    assert {plain(item) for item in needed} - locked == {"ignis-queue"}
    assert not any("/" in line for line in lines), "no addresses"
