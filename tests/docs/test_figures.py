"""One command measures all that the pages of figures name."""

import re

import pytest

from benchmarks.pages import COMMANDS
from tests.examples import ROOT


@pytest.mark.parametrize("page", ["performance", "scale"])
def test_each_script_that_a_page_names_is_run(page):
    text = ROOT.joinpath(f"docs/{page}.md").read_text()
    named = re.findall(r"`(\w+)\.py`|benchmarks[./](\w+)|`(peers) --only", text)
    names = {name for names in named for name in names if name}
    assert len(names) > 5
    assert names - {command.split()[0] for command in COMMANDS} == set()
