"""Handlers that are objects, as IgnisMQ has them."""

import pytest

from queue_core import MagazineHandler, batch_handler
from queue_core.errors import BadOption
from queue_core.handling.contract import Contract
from queue_core.handling.magazine_handler import unwrapped
from tests.unit.handling.handler_runs import DELETED, REJECTED, outcomes


class Orders(MagazineHandler):
    """Handles message 0, rejects 1, and fails with 2."""

    def handle(self, message):
        if message["_message_id"] == 2:
            raise KeyError("who")
        return message["_message_id"] == 0

    def ignorable_exceptions(self):
        return {LookupError}


class Plain:
    def handle(self, message):
        return True


class Batches:
    @batch_handler
    def handle(self, batch):
        return [True] * batch.num_rows


class Asynchronous:
    async def handle(self, message):
        return True


class Called:
    def __call__(self, message):
        return False

    def handle(self, message):
        return True


def run(handler, ignorable=()):
    contract = Contract.of(handler, ignorable=ignorable)
    return outcomes(contract.handler, ignorable=contract.ignorable)


def test_an_object_handles_messages_and_names_its_ignorable_exceptions():
    deleted, rejected, ignored = run(Orders())

    assert (deleted, rejected) == (DELETED, REJECTED)
    assert ignored[0] == "delete"
    assert "KeyError" in ignored[2]


def test_the_argument_adds_to_them():
    assert Contract.of(Orders(), ignorable=OSError).ignorable == (LookupError, OSError)
    assert Contract.of(Plain(), ignorable=[OSError]).ignorable == (OSError,)


@pytest.mark.parametrize("handler", [Plain(), Batches(), Asynchronous()])
def test_any_object_with_the_method_is_a_handler(handler):
    assert run(handler) == [DELETED] * 3


def test_what_can_be_called_is_called():
    assert run(Called()) == [REJECTED] * 3


def test_a_class_is_refused():
    with pytest.raises(BadOption, match=r"handler=Orders is a class: give an object of it"):
        unwrapped(Orders, ())
