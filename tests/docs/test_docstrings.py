"""Every public name is described: each parameter, field, result and error of it."""

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from enum import Enum

import pytest

from queue_core import errors
from scripts import docstrings

#: Users are given these, and do not construct them.
GIVEN = {
    "BreakerSwitch",
    "Buffer",
    "Firing",
    "Handled",
    "IdSet",
    "Queue",
    "TargetConsumer",
    "TemporaryStore",
    "Trace",
    "TracedStep",
}
ERRORS = {name for name, kind in vars(errors).items() if inspect.isclass(kind)}
PACKAGES = ("queue_core", "queue_core.testing", "pyspark_ignis")


def public():
    """Each public object, once, with its name."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                found.setdefault(thing, name)
    return {name: thing for thing, name in found.items()}


PUBLIC = public()
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}


def functions():
    """Each public function and method, with its full name."""
    for name, thing in PUBLIC.items():
        if not inspect.isclass(thing):
            yield name, thing
            continue
        for member, method in docstrings.members(thing):
            if not isinstance(method, property) and not inherited(thing, member):
                yield f"{name}.{member}", method


def inherited(cls, member):
    """Whether a class of another package describes the method."""
    foreign = [base for base in cls.__mro__ if not base.__module__.startswith(PACKAGES)]
    return any(member in vars(base) for base in foreign)


FUNCTIONS = dict(functions())


def test_each_internal_method_is_there():
    for name in docstrings.INTERNAL:
        cls, _, method = name.partition(".")
        assert hasattr(CLASSES[cls], method)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_described(name):
    assert docstrings.read(PUBLIC[name]).text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_parameter_is_described(name):
    function = FUNCTIONS[name]
    described = docstrings.read(function).entries.get("Args", {})

    assert list(described) == [each.name for each in docstrings.parameters(function)]
    assert all(described.values())


def test_each_duration_may_be_a_text_or_a_timedelta():
    """A parameter in seconds takes all the forms of `queue_core.values.durations`."""
    takers = FUNCTIONS | {name: cls.__init__ for name, cls in CLASSES.items() if name not in GIVEN}
    described = {
        name: docstrings.read(PUBLIC.get(name, function)).entries.get("Args", {})
        for name, function in takers.items()
    }
    durations = {
        (name, parameter): str(inspect.signature(takers[name]).parameters[parameter].annotation)
        for name, texts in described.items()
        for parameter, text in texts.items()
        if re.search(r"\bseconds\b", text, re.IGNORECASE) and "messages a second" not in text
    }

    assert "Duration" in durations["Queue.sweep", "older_than"]
    assert {key for key, kind in durations.items() if re.search(r"\bfloat\b", kind)} == set()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_result_is_described(name):
    function = FUNCTIONS[name]
    returned = inspect.signature(function).return_annotation
    texts = docstrings.read(function).texts

    assert bool(texts.get("Returns") or texts.get("Yields")) == (returned not in (None, "None"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_error_is_in_the_list_of_errors(name):
    """Errors that the text names, or that the function raises itself."""
    function = inspect.unwrap(FUNCTIONS[name])
    docstring = docstrings.read(function)
    listed = docstring.entries.get("Raises", {})
    named = set(re.findall(r"`(\w+)`", docstring.text)) & ERRORS
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = {
        node.exc.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    }

    assert (named | raised) & ERRORS <= set(listed)
    assert all(listed.values())


@pytest.mark.parametrize("name", CLASSES)
def test_each_field_and_constructor_parameter_is_described(name):
    cls = CLASSES[name]
    if issubclass(cls, Exception) or name in GIVEN:
        return
    described = docstrings.described_fields(cls).keys()
    if dataclasses.is_dataclass(cls):
        expected = {each.name for each in dataclasses.fields(cls)}
    elif issubclass(cls, Enum):
        expected = set(cls.__members__)
    elif "__init__" in vars(cls) and not getattr(cls, "_is_protocol", False):
        expected = {each.name for each in docstrings.parameters(cls)}
    else:
        expected = set()

    assert expected - described == set()


@pytest.mark.parametrize("name", CLASSES)
def test_each_property_is_described(name):
    undescribed = [
        member
        for member, it in docstrings.members(CLASSES[name])
        if isinstance(it, property) and not it.__doc__
    ]

    assert undescribed == []
