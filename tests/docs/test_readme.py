"""The examples of the README run as they stand, one after the other, and give what they say."""

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


def blocks(language: str) -> Iterator[str]:
    """The examples in a language, each at the line where it stands in the README."""
    text = ROOT.joinpath("README.md").read_text()
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1]


def execute(code: str, names: dict[str, Any]) -> int:
    """Run an example; check each value that it claims, and return how many these were."""
    lines = code.splitlines()
    checked = 0
    for statement in ast.parse(code).body:
        claim = _RESULT.search(lines[statement.end_lineno - 1])
        if claim is not None and isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), "README.md", "eval"), names)
            assert repr(value) == claim[1], f"README.md, line {statement.lineno}"
            checked += 1
        else:
            exec(compile(ast.Module([statement], []), "README.md", "exec"), names)
    return checked


def test_the_examples_give_what_they_say(spark, tmp_path, monkeypatch):
    names: dict[str, Any] = {"__name__": "__main__"}
    code = list(blocks("python"))

    checked = sum(execute(each.replace(FOLDER, f"{tmp_path}/shop"), names) for each in code)
    names["store"].close()

    assert checked == sum(each.count("# ->") for each in code) > 10
    check_commands(tmp_path, monkeypatch)


def check_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown of the command line works on the store that the examples have made."""
    commands = [shlex.split(line) for each in blocks("bash") for line in each.splitlines()]
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
    assert {"queues", "peek", "shovel", "sweep", "vacuum", "top"} <= set(ran)


def test_the_make_targets_that_are_shown_exist():
    shown = {
        target for block in blocks("bash") for target in re.findall(r"^make (\w+)", block, re.M)
    }
    known = re.findall(r"^(\w+):", ROOT.joinpath("Makefile").read_text(), re.MULTILINE)

    assert shown >= {"demo", "test"}
    assert shown <= set(known)


def test_there_is_one_place_for_the_figures():
    readme = ROOT.joinpath("README.md").read_text()

    assert readme.count("\n## Figures\n") == 1
    figures = readme.partition("\n## Figures\n")[2].partition("\n## ")[0]
    assert re.search(r"^\| .*\d", figures, re.MULTILINE), "the section has no table with numbers"
