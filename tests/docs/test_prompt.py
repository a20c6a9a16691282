"""The examples of every page can be pasted into Python's prompt, which reads line by line.

The prompt ends a `def`, a `with` or a class at the first empty line, and needs that line.
"""

import codeop
import warnings

import pytest

from tests.examples import blocks
from tests.tree import ROOT

PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    if "\n```python\n" in page.read_text()
)


def test_the_pages_are_found():
    assert {"README.md", "docs/guide.md", "docs/how-to/fan-out.md", "docs/how-to/kafka.md"} <= {
        *PAGES
    }


@pytest.mark.parametrize("page", PAGES)
def test_its_examples_can_be_pasted(page):
    for code in blocks(page, "python"):
        refused = pasted(code)
        assert refused is None, f"{page}, line {refused}"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1\n\ndef f():\n    return x\n\nf()\n", None),
        ("f(\n    1,\n\n    2,\n)\n", None),
        ("if x:\n    y\nelse:\n    z\n\ny\n", None),
        ("def f():\n    return x\nf()\n", "3: invalid syntax"),
        ("def f():\n    x = 1\n\n    return x\n", "4: unexpected indent"),
        ("class A:\n    x = 1\n\n    y = 2\n", "4: unexpected indent"),
        ("f(\n", "2: the example is not complete"),
    ],
)
def test_the_prompt_refuses_what_it_cannot_read(code, line):
    assert pasted(code) == line


def pasted(code: str) -> str | None:
    """Return the line that the prompt refuses and why; None if it reads every line."""
    compiled = codeop.CommandCompiler()
    waiting: list[str] = []
    number = 0
    # One empty line more, as after a paste.
    for number, line in enumerate([*code.splitlines(), ""], 1):
        waiting.append(line)
        try:
            with warnings.catch_warnings():
                # That a line compares a constant, such as the result that it shows.
                warnings.simplefilter("ignore")
                command = compiled("\n".join(waiting), symbol="single")
        except SyntaxError as error:
            return f"{number}: {error.msg}"
        if command is not None:
            waiting = []
    return f"{number}: the example is not complete" if waiting else None
