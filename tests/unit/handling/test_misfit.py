"""Values that do not fit say where they are."""

import pytest

from queue_core.handling.misfit import Misfit


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([], "is null"),
        (["lines"], "lines: is null"),
        (["n", "lines"], "lines.n: is null"),
        (["[2]", "lines"], "lines[2]: is null"),
        (["n", "[2]", "lines"], "lines[2].n: is null"),
        (["[0]", "[2]"], "[2][0]: is null"),
    ],
)
def test_the_path_grows_from_the_inside(steps, told):
    misfit = Misfit("is null")
    for step in steps:
        misfit = misfit.within(step)

    assert str(misfit) == told
