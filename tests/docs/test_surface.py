"""The public surface: the names that stay, and the only ones that the documentation uses."""

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import ROOT

#: A name that is added here is promised to users; one that is removed needs a word in CHANGELOG.md.
SURFACE = {
    "queue_core": {
        "Annihilate",
        "Backup",
        "BadName",
        "BadOption",
        "BadOutcome",
        "BadSelector",
        "Breaker",
        "BreakerSwitch",
        "Buffer",
        "CatalogForbidden",
        "CatalogUnavailable",
        "Chosen",
        "Confirm",
        "Conflict",
        "Consumer",
        "ConsumerFenced",
        "ConsumerPool",
        "ConsumerTarget",
        "Damaged",
        "DamagedBackup",
        "DamagedCatalog",
        "DamagedSegment",
        "Decision",
        "DropDuplicates",
        "Extent",
        "Firing",
        "FormatTooNew",
        "IdSet",
        "IgnisError",
        "Invalid",
        "Later",
        "Latest",
        "Limit",
        "METADATA",
        "MagazineHandler",
        "Merge",
        "MergeAdjacent",
        "NoSuchQueue",
        "NoSuchStore",
        "NotLeading",
        "OffsetsLost",
        "Predicate",
        "Pressure",
        "PublicationRefused",
        "Queue",
        "QueueAdmin",
        "QueueDeactivated",
        "QueueExists",
        "QueueFull",
        "QueueInTransaction",
        "QueueSettings",
        "QueueTaken",
        "Reject",
        "Restored",
        "Retry",
        "SchemaMismatch",
        "Settlement",
        "StaleCheckpoint",
        "Step",
        "StorageUnavailable",
        "SubscriptionDetached",
        "Store",
        "StoreAdmin",
        "SuspendReason",
        "Take",
        "TargetConsumer",
        "Ticket",
        "Trace",
        "TracedStep",
        "Unavailable",
        "VIEWS",
        "Vectorised",
        "batch_handler",
        "constant",
        "exponential",
        "limit",
        "opentelemetry_instruments",
        "per_message",
        "prometheus_collector",
        "traced_handler",
        "tracing",
        "vectorised",
    },
    "queue_core.testing": {
        "Handled",
        "TemporaryStore",
        "crash_at",
        "handle",
        "temporary_store",
    },
    "pyspark_ignis": {
        "BatchReport",
        "DefaultSource",
        "IgnisDataSource",
        "IgnisManager",
        "Later",
        "Limit",
        "QueueState",
        "QueueStats",
        "Reject",
        "Retry",
        "batch_handler",
        "constant",
        "consume",
        "consume_many",
        "consumer_of",
        "exponential",
        "limit",
        "listener",
        "tuned",
    },
}


@pytest.mark.parametrize("package", SURFACE)
def test_the_surface_is_what_is_declared(package):
    assert set(importlib.import_module(package).__all__) == SURFACE[package]


@pytest.mark.parametrize("package", ["queue_core", "pyspark_ignis"])
def test_the_lists_of_a_package_agree(package):
    """Names are listed for readers, for type checkers and for the lazy import."""
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).read_text())
    typed = {
        alias.asname or name: (node.module, name)
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        for alias in node.names
        for name in (classes_of(node.module) if alias.name == "*" else [alias.name])
    }
    lazy = {name: (home, name) for name, home in module._HOMES.items()}

    assert typed == lazy
    assert set(module.__all__) == lazy.keys()


def classes_of(module: str) -> list[str]:
    found = vars(importlib.import_module(module))
    return [name for name, value in found.items() if isinstance(value, type)]


@pytest.mark.parametrize("package", SURFACE)
def test_each_public_name_is_the_object_of_its_home(package):
    """A submodule of the same name would hide it once it is imported."""
    module = importlib.import_module(package)

    assert [name for name in module.__all__ if (ROOT / package / f"{name}.py").exists()] == []
    assert set(module.__all__) <= set(dir(module))


def examples() -> Iterator[tuple[str, str]]:
    """Each Python example of the README, docs/, examples/ and the notebooks, with its file."""
    for file in sorted((ROOT / "examples").glob("*.py")):
        yield file.name, file.read_text()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S):
            yield page.name, block
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(notebook.read_text())["cells"]:
            if cell["cell_type"] == "code":
                source = "".join(cell["source"])
                yield notebook.name, re.sub(r"^%.*$", "", source, flags=re.M)


def imports(code: str) -> Iterator[tuple[str, str]]:
    """Return the modules and names that an example imports from our packages."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found = [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        else:
            continue
        packages = (*SURFACE, "ignis_source", "ignis_sink")
        yield from (pair for pair in found if pair[0].split(".")[0] in packages)


def test_the_documentation_uses_the_public_surface_alone():
    """The notebooks may use the demonstration's own helpers besides."""
    used = {(page, *found) for page, code in examples() for found in imports(code)}
    private = {
        (page, module, name)
        for page, module, name in used
        if name not in SURFACE.get(module, ())
        and not (page.endswith(".ipynb") and module.startswith("examples.demo"))
    }

    assert used
    assert private == set()
