"""The README runs with the libraries that its extras bring, and no others; the queue with fewer.

The libraries are those of the environment of the tests: the declared ones, with all that they need,
are linked into an empty environment, so nothing is downloaded.
"""

import os
import re
import subprocess
import tomllib
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.tree import PACKAGES, ROOT

pytestmark = pytest.mark.nightly

PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
#: Runs the examples of the README.
RUN = """
import re, sys
page, folder = sys.argv[1:]
for code in re.findall(r"^```python$(.*?)^```$", open(page).read(), re.MULTILINE | re.DOTALL):
    exec(compile(code.replace("/tmp/shop", folder), page, "exec"))
print(failed := orders.failures().column("reason").to_pylist())
"""
#: Runs those that need no Java, imports all that the others import, and asks what Spark asks for
#: before it runs a handler.
RUN_WITHOUT_JAVA = """
import importlib, pkgutil, re, sys
from pyspark.sql.pandas.utils import (
    require_minimum_pandas_version, require_minimum_pyarrow_version,
)
OF_OTHER_EXTRAS = (
    "airflow", "jinja2", "kazoo", "matplotlib", "opentelemetry", "prometheus_client", "starlette",
    "uvicorn",
)
page, folder, *packages = sys.argv[1:]
for package in map(importlib.import_module, packages):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in OF_OTHER_EXTRAS:
                raise
require_minimum_pandas_version()
require_minimum_pyarrow_version()
for code in re.findall(r"^```python$(.*?)^```$", open(page).read(), re.MULTILINE | re.DOTALL):
    if "SparkSession" in code:
        # Spark publishes and handles there; here is what it would publish, and the handler.
        import ast
        import pyarrow as pa
        from queue_core import Store
        orders = [{"order_id": n, "amount": 10.0 * n} for n in range(10)]
        schema = pa.schema([("order_id", pa.int64()), ("amount", pa.float64())])
        Store.open(folder).create_queue("orders", schema).load(orders)
        defined = [each for each in ast.parse(code).body if isinstance(each, ast.FunctionDef)]
        code = "\\n".join(map(ast.unparse, defined))
    exec(compile(code.replace("/tmp/shop", folder), page, "exec"))
print(pool.counts)
"""
#: What a web service with a pool does.
PLAIN = """
import sys
import pyarrow as pa
from queue_core import ConsumerPool, Store
with Store.open(sys.argv[1]) as store:
    queue = store.create_queue("orders", pa.schema([("id", pa.int64())]))
    queue.load([{"id": n} for n in range(3)])
    with ConsumerPool(store, "orders", lambda order: order["id"] >= 0) as pool:
        pool.drain()
    store.view("queues"), queue.metadata(), store.admin.fsck()
print(pool.counts)
"""


def needed(names: list[str]) -> Iterator[Distribution]:
    """Yield the distributions that are installed for some requirements, with all they need."""
    seen, left = set(), [(Requirement(name), "") for name in names]
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        key = (re.sub(r"[-_.]+", "-", requirement.name).lower(), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        found = distribution(requirement.name)
        yield found
        for each in found.requires or ():
            for chosen in ("", *requirement.extras):
                left.append((Requirement(each), chosen))


def link(found: Distribution, site: Path) -> None:
    """Link the files of a distribution into another environment."""
    for name in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
        target = site / name
        if not target.exists() and not name.startswith("__pycache__"):
            target.symlink_to(found.locate_file(name))


@pytest.fixture
def environment(tmp_path):
    """A Python with the project and the extras that the README names."""
    return make_environment(tmp_path / "environment", "spark", "cli")


@pytest.fixture
def small_environment(tmp_path):
    """A Python with the project, without any extra."""
    return make_environment(tmp_path / "small")


def make_environment(folder: Path, *extras: str) -> Path:
    """Make an environment with the declared dependencies; return its Python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    declared = [*PROJECT["dependencies"]]
    for extra in extras:
        declared += PROJECT["optional-dependencies"][extra]
    for found in needed(declared):
        link(found, site)
    for package in PACKAGES:
        site.joinpath(package).symlink_to(ROOT / package)
    return folder / "bin/python"


def run(python: Path, code: str, *arguments: str, active: bool = True) -> str:
    """Run a script that succeeds; return its output."""
    done = start(python, code, *arguments, active=active)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fail(python: Path, code: str) -> str:
    """Run a script that fails; return its last line."""
    done = start(python, code)
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


def start(
    python: Path, code: str, *arguments: str, active: bool = True
) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST", "SPARK_", "VIRTUAL_ENV", "COV_"))
    }
    # Spark starts its workers with the `python3` of the path.
    first = python.parent if active else without_ignis(python.parent.parent / "elsewhere")
    clean["PATH"] = f"{first}{os.pathsep}{clean['PATH']}"
    if active:
        clean["PYSPARK_PYTHON"] = str(python)
    # A Spark that starts fast.
    clean |= {
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.ui.enabled=false pyspark-shell",
    }
    return subprocess.run(
        [python, "-c", code, *arguments],
        env=clean, capture_output=True, text=True, timeout=600, cwd=python.parent,
    )  # fmt: skip


def without_ignis(folder: Path) -> Path:
    """Make an environment without any library; return the folder of its Python."""
    venv.create(folder, symlinks=True)
    return folder / "bin"


@pytest.mark.slow
def test_the_readme_runs_with_nothing_but_what_it_installs(environment, tmp_path):
    """Also if the environment is not active, so that another `python3` comes first."""
    page, shop = str(ROOT / "README.md"), str(tmp_path / "shop")
    said = run(environment, RUN, page, shop, active=False)

    assert "ValueError: card declined" in said


def test_nothing_imports_more_than_what_is_installed(environment, tmp_path):
    """The part of the test above that takes seconds: it starts no Spark."""
    said = run(
        environment, RUN_WITHOUT_JAVA, str(ROOT / "README.md"), str(tmp_path / "shop"), *PACKAGES
    )

    assert said == "{'deleted': 10, 'sidelined': 1}\n"


def test_the_queue_needs_neither_spark_nor_the_command_line(small_environment, tmp_path):
    (site,) = small_environment.parent.parent.glob("lib/python*/site-packages")
    absent = ("pyspark", "pandas", "typer", "rich", "psycopg", "kazoo")
    assert [name for name in absent if site.joinpath(name).exists()] == []

    assert run(small_environment, PLAIN, str(tmp_path / "shop")) == "{'deleted': 3}\n"
    code = "import pyspark_ignis; pyspark_ignis.consume"
    assert "needs PySpark 4 or later, which is not installed: pip install" in fail(
        small_environment, code
    )
    assert "command line needs typer and rich, which are not installed: pip install" in fail(
        small_environment, "from ignis_cli.__main__ import main; main()"
    )


def test_a_pyspark_that_is_too_old_is_named(small_environment):
    (site,) = small_environment.parent.parent.glob("lib/python*/site-packages")
    site.joinpath("pyspark/sql").mkdir(parents=True)
    site.joinpath("pyspark/__init__.py").write_text("__version__ = '3.5.3'")
    site.joinpath("pyspark/sql/__init__.py").touch()

    assert "needs PySpark 4 or later; this is PySpark 3.5.3" in fail(
        small_environment, "import pyspark_ignis; pyspark_ignis.consume"
    )
    # Spark then finds the sources of other packages.
    code = "import pyspark_ignis; print(hasattr(pyspark_ignis, 'DefaultSource'))"
    assert run(small_environment, code) == "False\n"


def test_pandas_is_only_asked_for_where_spark_needs_it(environment):
    """An environment without pandas refuses a handler in Python before anything is started."""
    (site,) = environment.parent.parent.glob("lib/python*/site-packages")
    site.joinpath("pandas").unlink()
    code = """
from pyspark_ignis.settlement import check_pandas
try:
    check_pandas()
except Exception as error:
    print(type(error).__name__, error)
"""
    assert run(environment, code).startswith("BadOption handler: Spark needs pandas")


@pytest.mark.slow
def test_another_python_of_spark_is_named(environment, small_environment, tmp_path):
    """Spark looks for data sources in its own Python, where ignis may be missing."""
    (site,) = small_environment.parent.parent.glob("lib/python*/site-packages")
    for package in PACKAGES:
        site.joinpath(package).unlink()
    code = f"""
import os
os.environ["PYSPARK_PYTHON"] = {str(small_environment)!r}
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark_ignis import consume
from queue_core import Store
path, checkpoint = {str(tmp_path / "shop")!r}, {str(tmp_path / "checkpoint")!r}
Store.open(path).create_queue("orders", pa.schema([("id", pa.int64())]))
spark = SparkSession.builder.getOrCreate()
try:
    consume(spark, path=path, queue="orders", handler=lambda m: True, checkpoint=checkpoint)
except Exception as error:
    print(type(error).__name__, error)
"""
    said = run(environment, code)

    assert said.startswith("BadOption Spark does not find ignis: Spark runs ")
    assert f"set PYSPARK_PYTHON={environment}" in said
