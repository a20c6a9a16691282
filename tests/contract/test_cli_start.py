"""The command line starts at once, because it imports only what a command needs."""

import json
import subprocess
import sys

import pytest

from queue_core import Store

#: What takes longest to import.
HEAVY = ("numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy", "sqlglot", "starlette")

_CODE = """
import json, sys
sys.argv[0] = "ignis"
from ignis_cli.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules(*args: str) -> set[str]:
    """Return what `ignis` has imported at its end."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE, *args], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("args", [("--help",), ("--version",), ()])
def test_the_help_imports_no_command(args):
    found = modules(*args)

    assert not found & set(HEAVY)
    assert not [name for name in found if name.startswith("ignis_cli.commands_")]


def test_a_view_of_the_queues_needs_no_verb(tmp_path):
    Store.open(tmp_path / "store").close()

    found = modules("queues", "--path", str(tmp_path / "store"))

    assert not found & {"pandas", "pyspark", "rich", "sqlglot", "starlette"}
    assert "queue_core.queue.queue" not in found
    assert not [name for name in found if name.startswith("queue_core.verbs.")]
    ours = [name for name in found if name.startswith(("queue_core", "ignis_"))]
    assert len(ours) < 140, "each takes a millisecond or two"


def test_no_command_imports_spark():
    code = "import sys, scripts.cli_page as page; page.every_command(); print(*sys.modules)"

    found = subprocess.check_output([sys.executable, "-c", code], text=True).split()

    assert "ignis_cli.commands_work" in found
    assert "pyspark" not in found


def test_a_handler_still_gets_pandas():
    code = "import ignis_cli.tables, pyarrow as pa; print(pa.table({'n': [1]}).to_pandas().n.sum())"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "1\n"
