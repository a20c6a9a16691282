"""Every public name is described: each parameter, field, result and error of it."""

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from enum import Enum

from queue_core import errors
from scripts import docstrings
from tests.tree import PUBLIC_MODULES

#: Users are given these, and do not construct them.
GIVEN = {
    "BreakerSwitch",
    "Buffer",
    "Firing",
    "Handled",
    "IdSet",
    "Queue",
    "QueueAdmin",
    "QueueInTransaction",
    "StoreAdmin",
    "TargetConsumer",
    "TemporaryStore",
    "Trace",
    "TracedStep",
}
ERRORS = {name for name, kind in vars(errors).items() if inspect.isclass(kind)}


def public():
    """Each public object, once, with its name."""
    found = {}
    for package in PUBLIC_MODULES:
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
    foreign = [base for base in cls.__mro__ if not base.__module__.startswith(PUBLIC_MODULES)]
    return any(member in vars(base) for base in foreign)


FUNCTIONS = dict(functions())


def test_each_internal_method_is_there():
    for name in docstrings.INTERNAL:
        cls, _, method = name.partition(".")
        assert hasattr(CLASSES[cls], method)


def test_each_public_name_is_described():
    assert [name for name, thing in PUBLIC.items() if not docstrings.read(thing).text] == []


def test_each_parameter_is_described():
    for name, function in FUNCTIONS.items():
        described = docstrings.read(function).entries.get("Args", {})
        parameters = [each.name for each in docstrings.parameters(function)]

        assert (name, list(described)) == (name, parameters)
        assert all(described.values()), name


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


def test_each_result_is_described():
    for name, function in FUNCTIONS.items():
        returned = inspect.signature(function).return_annotation
        texts = docstrings.read(function).texts
        described = bool(texts.get("Returns") or texts.get("Yields"))

        assert described == (returned not in (None, "None")), name


def test_each_error_is_in_the_list_of_errors():
    """Errors that the text names, or that the function raises itself."""
    for name, wrapped in FUNCTIONS.items():
        function = inspect.unwrap(wrapped)
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

        assert (name, (named | raised) & ERRORS - set(listed)) == (name, set())
        assert all(listed.values()), name


def test_each_field_and_constructor_parameter_is_described():
    for name, cls in CLASSES.items():
        if not issubclass(cls, Exception) and name not in GIVEN:
            described = docstrings.described_fields(cls).keys()
            assert (name, expected_of(cls) - described) == (name, set())


def expected_of(cls):
    """The fields of a class, or the parameters of its constructor."""
    if dataclasses.is_dataclass(cls):
        return {each.name for each in dataclasses.fields(cls)}
    if issubclass(cls, Enum):
        return set(cls.__members__)
    if "__init__" in vars(cls) and not getattr(cls, "_is_protocol", False):
        return {each.name for each in docstrings.parameters(cls)}
    return set()


def test_each_property_is_described():
    undescribed = [
        f"{name}.{member}"
        for name, cls in CLASSES.items()
        for member, it in docstrings.members(cls)
        if isinstance(it, property) and not it.__doc__
    ]

    assert undescribed == []
