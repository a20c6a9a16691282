"""Import paths of policies: what they name, and which policies have one."""

import pytest

from queue_core.errors import BadOption
from queue_core.policies.builtin import Latest
from queue_core.policies.imported import imported, storable
from tests import own_checks


def test_a_path_is_imported():
    assert imported("tests.own_checks:add_up") is own_checks.add_up
    assert imported("tests.own_checks:Checks.refuse") is own_checks.Checks.refuse
    assert imported("tests.own_checks:LATEST") == Latest()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("no_such_module:check", "cannot be imported here: ModuleNotFoundError"),
        ("tests.own_checks:chek", "cannot be imported here: AttributeError"),
        ("tests.own_checks:NUMBER", "is 5; it must be a function"),
        ("tests.own_checks:Checks", "it must be a function"),
    ],
)
def test_a_path_without_a_policy_is_refused(path, told):
    with pytest.raises(BadOption, match=told):
        imported(path)


def test_a_function_is_stored_by_its_path():
    assert storable({"policy": own_checks.add_up}) == {"policy": "tests.own_checks:add_up"}
    assert storable({"policy": own_checks.Checks.refuse})["policy"].endswith(":Checks.refuse")
    for settings in ({"policy": "latest"}, {"policy": None}, {"concurrency": 2}):
        assert storable(settings) == settings


def test_a_policy_that_others_cannot_import_is_refused():
    def local(new, queued):
        raise AssertionError

    of_main = type(local)(local.__code__, globals(), "of_main")
    of_main.__module__ = "__main__"
    for policy in (local, lambda new, queued: None, of_main):
        with pytest.raises(BadOption, match="define it at the top of an installed module"):
            storable({"policy": policy})
    for policy in (Latest(), own_checks.BY_WORDS, 5):
        with pytest.raises(BadOption, match="cannot be stored: give its text"):
            storable({"policy": policy})
