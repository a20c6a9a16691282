"""The mutants fit the present code."""

import ast
import re

from tests.mutants.mutants import MUTANTS
from tests.tree import ROOT


def test_they_have_different_names():
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS}) >= 200


def test_a_mutant_changes_one_place():
    for mutant in MUTANTS:
        source = (ROOT / mutant.file).read_text()

        assert source.count(mutant.old) == 1, mutant.name
        changed = source.replace(mutant.old, mutant.new)
        line = source[: source.index(mutant.old)].count("\n") + 1
        # To dump a whole module takes long, and what stands before the change is the same.
        before, after = (
            [node for node in ast.parse(text).body if (node.end_lineno or 0) >= line]
            for text in (source, changed)
        )
        pairs = zip(before, after, strict=False)
        differ = any(ast.dump(one) != ast.dump(other) for one, other in pairs)
        assert differ or len(before) != len(after), mutant.name


def test_the_gate_has_the_tests_of_a_mutant():
    """`python -m tests.mutants` runs them as the gate does."""
    for mutant in MUTANTS:
        paths = [ROOT / test for test in mutant.tests]
        files = [f for path in paths for f in [path, *path.glob("test_*.py")] if f.is_file()]

        assert len(files) >= len(paths) > 0, mutant.name
        # Of a file with some nightly tests, the others run.
        assert not any(re.search(r"^pytestmark = .*nightly", f.read_text(), re.M) for f in files)
