"""The mutants fit the present code."""

import ast
import re

from tests.conftest import ROOT
from tests.mutants.mutants import MUTANTS


def test_they_have_different_names():
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS}) >= 200


def test_a_mutant_changes_one_place():
    for mutant in MUTANTS:
        source = (ROOT / mutant.file).read_text()

        assert source.count(mutant.old) == 1, mutant.name
        changed = source.replace(mutant.old, mutant.new)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant.name


def test_the_gate_has_the_tests_of_a_mutant():
    """`python -m tests.mutants` runs them as the gate does."""
    for mutant in MUTANTS:
        paths = [ROOT / test for test in mutant.tests]
        files = [f for path in paths for f in [path, *path.glob("test_*.py")] if f.is_file()]

        assert len(files) >= len(paths) > 0, mutant.name
        # Of a file with some nightly tests, the others run.
        assert not any(re.search(r"^pytestmark = .*nightly", f.read_text(), re.M) for f in files)
