"""The examples of a page: found, executed, and compared with the values that they claim."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from tests.tree import ROOT

#: The folder of the examples, in the place of which each test has its own.
FOLDER = "/tmp/shop"
#: The database of the examples, in the place of which each test has its own.
DATABASE = "postgresql://shop@database/shop"
#: The server of Spark Connect of the examples, in the place of which the tests start one.
CONNECT = "sc://server:15002"
_RESULT = re.compile(r"# -> (.+)$")


def blocks(page: str, language: str) -> Iterator[str]:
    """Yield the examples in a language, each at the line where it stands on the page."""
    text = ROOT.joinpath(page).read_text()
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1]


def files(page: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file that a page shows, in a block with a title."""
    text = ROOT.joinpath(page).read_text()
    pattern = r'^```\w+ title="([^"]+)"\n(.*?)^```$'
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        yield match[1], match[2]


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
