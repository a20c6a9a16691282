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


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_gate_has_the_tests_of_a_mutant(mutant):
    """`python -m tests.mutants` runs them as the gate does."""
    paths = [ROOT / test for test in mutant.tests]
    files = [file for path in paths for file in [path, *path.glob("test_*.py")] if file.is_file()]

    assert len(files) >= len(paths)
    assert not any("nightly" in file.read_text() for file in files)
