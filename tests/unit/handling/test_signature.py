"""A handler that cannot take its arguments is refused by its name and signature."""

from functools import partial

import pytest

from queue_core.errors import BadOption
from queue_core.handling.signature import arguments_of, check_signature

ONE, TWO = arguments_of(with_metadata=False), arguments_of(with_metadata=True)


class Handler:
    def handle(self, message):
        return True

    def __call__(self, message, columns):
        return True


async def later(message):
    return True


def one(message):
    return True


def more(*arguments):
    return True


def with_default(message, connection=None):
    return True


@pytest.mark.parametrize("handler", [one, later, Handler().handle, more, with_default, print, dict])
def test_handlers_of_one_argument(handler):
    check_signature(handler, ONE)


@pytest.mark.parametrize("handler", [Handler(), more, with_default, partial(Handler())])
def test_handlers_of_two_arguments(handler):
    check_signature(handler, TWO)


def nothing():
    return True


def by_name(*, message):
    return True


@pytest.mark.parametrize(
    ("handler", "arguments", "told"),
    [
        (nothing, ONE, r"handler=nothing\(\) cannot take its 1 argument, the message"),
        (by_name, ONE, r"handler=by_name\(\*, message\)"),
        (Handler(), ONE, r"handler=Handler\(message, columns\).*missing.*'columns'"),
        (Handler().handle, TWO, r"handler=Handler.handle\(message\) cannot take its 2 arguments"),
        (later, TWO, "and the other columns: too many positional arguments"),
        (partial(one, 1), ONE, r"handler=one\(\)"),
    ],
)
def test_others_are_refused(handler, arguments, told):
    with pytest.raises(BadOption, match=told):
        check_signature(handler, arguments)


def test_a_function_without_a_signature_passes():
    class Unreadable:
        @property
        def __signature__(self):
            raise ValueError("no signature")

        def __call__(self):
            return True

    check_signature(Unreadable(), ONE)


def in_parts(message):
    yield True


async def in_parts_later(message):
    yield True


class InParts:
    def __call__(self, message):
        yield True


@pytest.mark.parametrize("handler", [in_parts, in_parts_later, InParts(), partial(in_parts, 1)])
def test_a_generator_function_would_run_nothing(handler):
    with pytest.raises(BadOption, match="is a generator function, and a call of it runs nothing"):
        check_signature(handler, ONE)
