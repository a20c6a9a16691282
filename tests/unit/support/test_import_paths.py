"""Import paths: what they name, and what has one."""

import os.path

import pytest

from queue_core.errors import BadOption
from queue_core.support.import_paths import imported, is_path, path_of


def test_a_path_names_what_can_be_imported():
    assert imported("os.path:exists", "x") is os.path.exists
    assert path_of(pytest.approx) == "_pytest.python_api:approx"


@pytest.mark.parametrize("text", ["shop:check", "shop.policies:Checks.one", " shop:check "])
def test_paths(text):
    assert is_path(text)


@pytest.mark.parametrize("text", ["latest", "annihilate(a = ':b', c)", "shop:", ":check", "a:b:c"])
def test_texts_that_are_no_paths(text):
    assert not is_path(text)


@pytest.mark.parametrize("path", ["no.such.module:x", "os.path:no_such_name"])
def test_what_cannot_be_imported_is_refused(path):
    with pytest.raises(BadOption, match="check='x' cannot be imported here"):
        imported(path, "check='x'")


@pytest.mark.parametrize("value", [lambda: True, 3, object()])
def test_what_is_local_has_no_path(value):
    assert path_of(value) is None
