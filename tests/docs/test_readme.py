"""The examples of every page run as they stand, in order, and give their results."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from ignis_cli.app import app
from tests.conftest import spark_group
from tests.examples import CONNECT, DATABASE, FOLDER, blocks, execute, files
from tests.tree import ROOT

#: The pages with examples in Python; those that need jars are in tests/connectors.
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if "\n```python\n" in (text := page.read_text()) and "spark.jars.packages" not in text
)
#: The programs that a page runs on files that it shows, in a folder that it names by `cd … &&`.
PROGRAMS = ("python", "spark-pipelines", "ignis work")
_COMMAND = re.compile(rf"(?:cd (\S+) && )?((?:{'|'.join(PROGRAMS)}) .+)")
#: A server of Spark Connect has a port, which only one test can use at a time.
ONE_AT_A_TIME = pytest.mark.xdist_group(spark_group("test_connect.py"))
#: The page whose examples the gate runs with Spark; `make test-all` runs all, with programs too.
IN_THE_GATE = ("README.md",)
#: The commands that pages show on the store that their examples have made.
COMMANDS = {
    "README.md": {"queues", "failures", "shovel"},
    "docs/guide.md": {"queues", "peek", "failures", "shovel", "sweep", "vacuum", "fsck", "top"},
}


def test_the_pages_with_examples_are_found():
    assert {"README.md", "docs/guide.md", "docs/consumers.md", "docs/policies.md"} <= {*PAGES}


def test_one_command_removes_what_the_examples_of_all_pages_leave():
    """As the guide says: rm -rf /tmp/shop*. What stays belongs to a store that is gone."""
    other = re.compile(r'"/tmp/(?!shop\b)[^"]*"')
    found = {page: other.findall((ROOT / page).read_text()) for page in PAGES}

    assert {page: places for page, places in found.items() if places} == {}


def with_spark(page: str) -> bool:
    """Whether the examples of a page need Spark."""
    return any("SparkSession" in code for code in blocks(page, "python"))


def marks_of(page: str) -> list[pytest.MarkDecorator]:
    marks = [ONE_AT_A_TIME] if with_spark(page) else []
    lines = [line for each in blocks(page, "bash") for line in each.splitlines()]
    is_long = with_spark(page) or any(map(_COMMAND.fullmatch, lines))
    return [*marks, pytest.mark.nightly] if is_long and page not in IN_THE_GATE else marks


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks_of(page)) for page in PAGES])
def test_the_examples_return_what_they_say(page, request, tmp_path, monkeypatch):
    names: dict[str, Any] = {"__name__": "__main__"}
    monkeypatch.setattr(sys, "path", [*sys.path])
    request.getfixturevalue("_closing").callback(forget, tmp_path)
    request.getfixturevalue("_closing").enter_context(mock.patch.dict(os.environ))
    code = list(blocks(page, "python"))
    if with_spark(page):
        request.getfixturevalue("spark")

    meant = {FOLDER: f"{tmp_path}/shop", CONNECT: "local[2]"}
    if any("@database/shop" in each for each in code):
        server = request.getfixturevalue("postgres")
        url = request.getfixturevalue("_closing").enter_context(server.database())
        meant[DATABASE.replace("://", "+psycopg://")] = url
        meant[DATABASE] = url.replace("+psycopg", "")
    for place, text in files(page):
        file = Path(_meaning(place, meant))
        file.parent.mkdir(exist_ok=True)
        file.write_text(_meaning(text, meant))
    checked = 0
    for language, each in in_order(page):
        if language == "python":
            checked += execute(page, _meaning(each, meant), names)
        else:
            run_programs(_meaning(each, meant), tmp_path)
    names["store"].close()

    assert checked == sum(each.count("# ->") for each in code) > 3
    if page in COMMANDS:
        check_commands(page, tmp_path, monkeypatch)


@contextlib.contextmanager
def alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what an example does to the environment, and forget the modules of its files."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    with mock.patch.dict(os.environ):
        yield
    forget(folder)


def forget(folder: Path) -> None:
    """Forget the modules of the files in a folder; others stay what they are for later tests."""
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def in_order(page: str) -> list[tuple[str, str]]:
    """The examples of a page in Python and for a shell, in the order in which they stand there."""
    found = [(each, language) for language in ("python", "bash") for each in blocks(page, language)]
    # Each block begins with as many empty lines as stand before it on the page.
    found.sort(key=lambda pair: len(pair[0]) - len(pair[0].lstrip("\n")))
    return [(language, each) for each, language in found]


def run_programs(code: str, folder: Path) -> None:
    """Run the programs on files of the page, with the Python and the ignis of the tests."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYSPARK_PYTHON": sys.executable,
        # With it, PySpark gives its server of Spark Connect a free port.
        "SPARK_TESTING": "1",
    }
    for line in code.splitlines():
        command = _COMMAND.fullmatch(line)
        if command and str(folder) in line:
            done = subprocess.run(
                shlex.split(command[2]), cwd=command[1] or folder, env=environment,
                capture_output=True, text=True, timeout=280,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}: {done.stdout[-3000:]}{done.stderr[-3000:]}"


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
            # A query of the page may have handled these messages meanwhile.
            gone = "--id" in words and result.output.startswith("0 messages of orders")
            assert result.exit_code == (1 if gone else 0), f"{words}: {result.output}"
            assert result.stdout.strip(), f"{words} says nothing"
            ran.append(words[1])
    assert set(ran) >= COMMANDS[page]


def test_the_make_targets_that_are_shown_exist():
    shown = {
        target
        for block in blocks("README.md", "bash")
        for target in re.findall(r"^make ([\w-]+)", block, re.M)
    }
    known = re.findall(r"^([\w-]+):", ROOT.joinpath("Makefile").read_text(), re.MULTILINE)

    assert shown >= {"demo", "test"}
    assert shown <= set(known)


def test_there_is_one_place_for_the_figures():
    readme = ROOT.joinpath("README.md").read_text()

    assert readme.count("\n## Figures\n") == 1
    figures = readme.partition("\n## Figures\n")[2].partition("\n## ")[0]
    assert re.search(r"^\| .*\d", figures, re.MULTILINE), "the section has no table with numbers"


def test_the_front_page_is_short():
    readme = ROOT.joinpath("README.md").read_text()

    assert len(readme.splitlines()) <= 120
    assert len(re.findall(r"\]\([^)]+\)", readme)) <= 25, "the page of all pages has the others"


def test_the_picture_of_the_idea_comes_before_the_first_section():
    """Its words are those of the text, and no word is cut off or lies over another."""
    start = ROOT.joinpath("README.md").read_text().partition("\n## ")[0]
    assert "](docs/idea.svg)" in start

    picture = ROOT.joinpath("docs/idea.svg").read_text()
    panels = _boxes(picture, y=12)
    assert all(end < left for (_, end), (left, _) in pairwise(panels))
    assert panels[-1][1] < int(re.search(r'viewBox="0 0 (\d+) ', picture)[1])
    found = re.findall(r'<text x="(\d+)" y="(\d+)"([^>]*)>([^<]+)</text>', picture)
    texts = [(int(x), int(y), look, unescape(text)) for x, y, look, text in found]
    assert [text.split()[1] for _, y, _, text in texts if y == 40] == ["load", "fire", "settle"]
    # A letter of 14 pixels is about 7.2 pixels wide.
    for x, _, look, text in texts:
        (end,) = (end for left, end in panels if left < x < end)
        assert "middle" in look or x + 7.2 * len(text) <= end, text
    pieces = [text for _, y, _, text in texts if y == 224]
    for (left, end), text in zip(_boxes(picture, y=196), pieces, strict=True):
        assert 8.2 * len(text) < end - left + 2, text


def _boxes(picture, y):
    """Return the left and the right edges of the boxes of a picture that begin at a height."""
    found = re.findall(rf'<rect x="(\d+)" y="{y}" width="(\d+)"', picture)
    return [(int(x), int(x) + int(width)) for x, width in found]
