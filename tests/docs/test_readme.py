"""The examples of every page run as they stand, in order, and give their results."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyspark_ignis.cli import app

ROOT = Path(__file__).parents[2]
#: The folder of the examples, in the place of which each test has its own.
FOLDER = "/tmp/shop"
_RESULT = re.compile(r"# -> (.+)$")
#: The pages with examples in Python.
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if "\n```python\n" in page.read_text()
)
#: The commands that pages show on the store that their examples have made.
COMMANDS = {
    "README.md": {"queues", "failures", "shovel", "top"},
    "docs/guide.md": {"queues", "peek", "failures", "shovel", "sweep", "vacuum", "fsck", "top"},
}


def blocks(page: str, language: str) -> Iterator[str]:
    """Yield the examples in a language, each at the line where it stands on the page."""
    text = ROOT.joinpath(page).read_text()
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1]


def execute(page: str, code: str, names: dict[str, Any]) -> int:
    """Run an example, check each value that it claims, and return the number of claims."""
    lines = code.splitlines()
    checked = 0
    for statement in ast.parse(code).body:
        claim = _RESULT.search(lines[statement.end_lineno - 1])
        if claim is not None and isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), page, "eval"), names)
            assert repr(value) == claim[1], f"{page}, line {statement.lineno}"
            checked += 1
        else:
            exec(compile(ast.Module([statement], []), page, "exec"), names)
    return checked


def test_the_pages_with_examples_are_found():
    assert {"README.md", "docs/guide.md", "docs/consumers.md", "docs/policies.md"} <= {*PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_return_what_they_say(page, request, tmp_path, monkeypatch):
    names: dict[str, Any] = {"__name__": "__main__"}
    code = list(blocks(page, "python"))
    if any("SparkSession" in each for each in code):
        request.getfixturevalue("spark")

    checked = sum(execute(page, each.replace(FOLDER, f"{tmp_path}/shop"), names) for each in code)
    names["store"].close()

    assert checked == sum(each.count("# ->") for each in code) > 3
    if page in COMMANDS:
        check_commands(page, tmp_path, monkeypatch)


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
