"""One command measures all that the pages of figures name."""

import importlib
import re

import pytest

from benchmarks.pages import COMMANDS
from tests.tree import ROOT


@pytest.mark.parametrize("page", ["performance", "scale"])
def test_each_script_that_a_page_names_is_run(page):
    text = ROOT.joinpath(f"docs/{page}.md").read_text()
    named = re.findall(r"`(\w+)\.py`|benchmarks[./](\w+)|`(peers) --only", text)
    names = {name for names in named for name in names if name}
    assert len(names) > 5
    assert names - {command.split()[0] for command in COMMANDS} == set()


@pytest.mark.parametrize("name", sorted({command.split()[0] for command in COMMANDS}))
def test_each_script_can_be_run_as_a_module(name):
    """A script that imports its neighbours without their package cannot."""
    assert importlib.import_module(f"benchmarks.{name}")
