"""Tests follow the modules: each pure module is tested, and privates stay private."""

import ast
from functools import cache
from pathlib import Path

from tests.mutants.mutants import MUTANTS
from tests.tree import PACKAGES, ROOT

UNIT = ROOT / "tests/unit"
#: What a pure module does not import, not even through other modules.
IMPURE = {"airflow", "kazoo", "pyspark", "sqlalchemy"}
STORAGE = "queue_core.segments.storage"

#: Pure modules without a file in tests/unit and without a mutant, each with the reason.
NOT_MIRRORED = {
    "queue_core.catalog.databases.poolers": "tests/processes/test_poolers.py asks a real PgBouncer",
    "queue_core.waiting.firing": "a value, which tests/contract/test_fire.py has from a store",
    "queue_core.pool.timings": "constants alone",
    "queue_core.queue.settling": "a face, which tests/contract/test_delete.py has from a store",
    "queue_core.segments.buffers": "tests/contract/test_buffers.py loads from buffers",
    "queue_core.support.trace_context": "tests/contract/test_trace_context.py runs handlers",
    "queue_core.values.views": "columns, which tests/contract/test_metadata.py reads back",
}
#: Where tests see behaviour, and so use only what is public.
OF_BEHAVIOUR = ("console", "contract", "processes", "property")
#: Accesses to privates on purpose, each explained by a comment there.
SEAMS = {
    "tests/contract/test_buffers.py: _Checksummed",
    "tests/contract/test_fire_within.py: _own",
    "tests/contract/test_forks.py: _lock",
    "tests/contract/test_pool_output.py: _load",
    "tests/contract/test_redrive.py: _begun",
    "tests/contract/test_redrive.py: _jobs",
    "tests/contract/test_redrive.py: _resting",
    "tests/contract/test_storage.py: _found",
    "tests/processes/test_connections.py: _timeout",
}


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


MODULES = {
    module_of(file): file
    for package in PACKAGES
    for file in ROOT.joinpath(package).rglob("*.py")
    if file.stem != "__init__"
}


@cache
def imports(module: str) -> frozenset[str]:
    """The imports at the top of a module, at run time; empty for a module of a library."""
    found: set[str] = set()
    pending = ast.parse(MODULES[module].read_text()).body if module in MODULES else []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update((names & MODULES.keys()) or {str(node.module)})
        elif isinstance(node, ast.Try | ast.With):
            pending.extend(node.body)
        # Imports in a condition are for type checkers, and those in functions come later.
    return frozenset(found)


def is_pure(module: str) -> bool:
    """Whether a module needs no catalog, no storage and no Spark."""
    seen, pending = {module}, [module]
    while pending:
        for name in imports(pending.pop()) - seen:
            seen.add(name)
            pending.append(name)
    return STORAGE not in seen and IMPURE.isdisjoint(name.partition(".")[0] for name in seen)


def mirror_of(module: str) -> Path:
    """Where the tests of a module are: the core's folders are those of tests/unit."""
    *folders, name = module.removeprefix("queue_core.").split(".")
    return UNIT.joinpath(*folders, f"test_{name}.py")


PURE = [name for name in MODULES if name.startswith("queue_core.") and is_pure(name)]
TEST_FILES = {mirror_of(name) for name in MODULES}


def test_pure_modules_are_found():
    assert {"queue_core.values.rows", "queue_core.segments.format"} <= set(PURE)
    assert {"queue_core.verbs.load", "queue_core.segments.reader"}.isdisjoint(PURE)


def test_a_pure_module_has_a_test_file_of_its_own_or_a_mutant():
    """A mutant names the tests that find a mistake in the module."""
    mutated = {mutant.file.removesuffix(".py").replace("/", ".") for mutant in MUTANTS}
    others = {module for module in PURE if not mirror_of(module).exists()}

    assert others - mutated == NOT_MIRRORED.keys()


def test_a_unit_test_file_is_named_after_a_module():
    assert set(UNIT.rglob("test_*.py")) - TEST_FILES == set()


def private_names(file: Path) -> set[str]:
    """Private attributes of other objects, and private names that are patched or imported."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case (
                ast.Attribute(value=ast.Name(id="self"))
                | ast.Attribute(value=ast.Name(id="os"), attr="_exit")
            ):
                continue
            case ast.Attribute(attr=name):
                found.add(name)
            case ast.Call(
                func=ast.Attribute(attr="setattr") | ast.Name(id="getattr" | "setattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ):
                found.add(name)
            case ast.ImportFrom(names=aliases):
                found.update(alias.name for alias in aliases)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_tests_of_behaviour_use_only_what_is_public():
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for folder in OF_BEHAVIOUR
        for file in ROOT.joinpath("tests", folder).rglob("*.py")
        for name in private_names(file)
    }

    assert found == SEAMS
