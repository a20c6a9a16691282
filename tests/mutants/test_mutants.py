"""The mutants fit the present code."""

import ast

import pytest

from tests.conftest import ROOT
from tests.mutants.mutants import MUTANTS


def test_there_are_thirty_two_of_different_names():
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS}) == 32


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place(mutant):
    source = (ROOT / mutant.file).read_text()

    assert source.count(mutant.old) == 1
    changed = source.replace(mutant.old, mutant.new)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    for test in mutant.tests:
        assert (ROOT / test).exists()
