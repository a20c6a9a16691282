"""The examples of every page run as they stand, in order, and give their results."""

import contextlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyspark_ignis.cli import app
from tests.examples import DATABASE, FOLDER, ROOT, blocks, execute

#: The pages with examples in Python; those that need jars are in tests/connectors.
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if "\n```python\n" in (text := page.read_text()) and "spark.jars.packages" not in text
)
#: The commands that pages show on the store that their examples have made.
COMMANDS = {
    "README.md": {"queues", "failures", "shovel", "top"},
    "docs/guide.md": {"queues", "peek", "failures", "shovel", "sweep", "vacuum", "fsck", "top"},
}


def test_the_pages_with_examples_are_found():
    assert {"README.md", "docs/guide.md", "docs/consumers.md", "docs/policies.md"} <= {*PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_return_what_they_say(page, request, tmp_path, monkeypatch):
    names: dict[str, Any] = {"__name__": "__main__"}
    code = list(blocks(page, "python"))
    if any("SparkSession" in each for each in code):
        request.getfixturevalue("spark")

    meant = {FOLDER: f"{tmp_path}/shop"}
    if any("@database/shop" in each for each in code):
        server = request.getfixturevalue("postgres")
        url = request.getfixturevalue("_closing").enter_context(server.database())
        meant[DATABASE.replace("://", "+psycopg://")] = url
        meant[DATABASE] = url.replace("+psycopg", "")
    checked = sum(execute(page, _meaning(each, meant), names) for each in code)
    names["store"].close()

    assert checked == sum(each.count("# ->") for each in code) > 3
    if page in COMMANDS:
        check_commands(page, tmp_path, monkeypatch)


@pytest.fixture
def _closing():
    with contextlib.ExitStack() as stack:
        yield stack


def _meaning(code: str, meant: dict[str, str]) -> str:
    for said, instead in meant.items():
        code = code.replace(said, instead)
    return code


def check_commands(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands that the page shows on the store that its examples have made."""
    commands = [shlex.split(line) for each in blocks(page, "bash") for line in each.splitlines()]
    ran = []
    for words in commands:
        if words[:1] == ["export"]:
            name, _, value = words[1].partition("=")
            monkeypatch.setenv(name, value.replace(FOLDER, f"{tmp_path}/shop"))
        elif words[:1] == ["ignis"]:
            result = CliRunner().invoke(app, words[1:])
            assert result.exit_code == 0, f"{words}: {result.output}"
            assert result.stdout.strip(), f"{words} says nothing"
            ran.append(words[1])
    assert set(ran) >= COMMANDS[page]


def test_the_make_targets_that_are_shown_exist():
    shown = {
        target
        for block in blocks("README.md", "bash")
        for target in re.findall(r"^make (\w+)", block, re.M)
    }
    known = re.findall(r"^(\w+):", ROOT.joinpath("Makefile").read_text(), re.MULTILINE)

    assert shown >= {"demo", "test"}
    assert shown <= set(known)


def test_there_is_one_place_for_the_figures():
    readme = ROOT.joinpath("README.md").read_text()

    assert readme.count("\n## Figures\n") == 1
    figures = readme.partition("\n## Figures\n")[2].partition("\n## ")[0]
    assert re.search(r"^\| .*\d", figures, re.MULTILINE), "the section has no table with numbers"
