"""The options of a handler: refusals, the time limit of a call, and the columns that it takes."""

import math
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import pytest

from queue_core import MagazineHandler, batch_handler
from queue_core.errors import BadOption, SchemaMismatch
from queue_core.handling.contract import (
    Contract,
    arguments_of,
    check_columns,
    check_payload,
    check_signature,
    unwrapped,
)
from queue_core.handling.payloads import Payload
from queue_core.values.schema import METADATA
from queue_core.values.settings import QueueSettings
from tests.unit.handling.handler_runs import DELETED, REJECTED, outcomes


@dataclass
class Order:
    """A payload."""

    number: int


def contract(**options):
    return Contract.of(bool, **options)


def a_queue(**settings):
    return SimpleNamespace(name="orders", settings=QueueSettings(**settings))


def test_options_are_read_and_there_is_nothing_by_default():
    assert contract(ignorable=KeyError).ignorable == (KeyError,)
    assert contract(ignorable=[KeyError, OSError]).ignorable == (KeyError, OSError)
    assert contract().ignorable == ()
    payload = contract(payload="json", payload_type=Order, with_metadata=True).payload
    assert (payload.column, payload.with_metadata) == ("json", True)
    assert contract().payload is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignorable": KeyboardInterrupt}, "is not a subclass of Exception"),
        ({"ignorable": ["KeyError"]}, "'KeyError' is not a subclass of Exception"),
        ({"payload_type": Order}, "need payload="),
        ({"with_metadata": True}, "need payload="),
        ({"payload": 5}, "give the name of the column"),
        ({"handler_timeout": 0}, "use seconds or a duration such as .*, more than 0"),
        ({"handler_timeout": math.inf}, "use seconds or a duration such as .*, more than 0"),
        ({"handler_timeout": True}, "use seconds or a duration such as .*, more than 0"),
        ({"handler_timeout": "soon"}, "use seconds or a duration such as .*, more than 0"),
    ],
)
def test_an_invalid_option_is_refused(options, message):
    with pytest.raises(BadOption, match=message):
        contract(**options)


def test_the_shortest_time_of_the_queues_counts_by_default():
    queues = [a_queue(handler_timeout=5.0), a_queue(handler_timeout=3.0)]

    assert contract().timeout_for(queues) == 3.0
    assert contract(handler_timeout="2s").timeout_for(queues) == 2.0
    assert contract(handler_timeout=timedelta(minutes=1)).timeout == 60.0


def test_a_call_must_end_well_before_a_sweep():
    queue = a_queue(sweep_after=10.0)

    assert contract(handler_timeout=5).timeout_for([queue]) == 5.0
    with pytest.raises(BadOption, match="use at most 5 seconds, half of sweep_after of queue"):
        contract(handler_timeout=5.1).timeout_for([queue])


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


class Unmarked:
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


@pytest.mark.parametrize(
    ("handler", "outcome"),
    [
        (Plain(), DELETED),
        (Batches(), DELETED),
        (batch_handler(Unmarked()), DELETED),
        (Asynchronous(), DELETED),
        (Called(), REJECTED),
    ],
)
def test_any_object_with_the_method_is_a_handler_unless_it_can_be_called(handler, outcome):
    assert run(handler) == [outcome] * 3


def test_a_class_is_refused():
    with pytest.raises(BadOption, match=r"handler=Orders is a class: give an object of it"):
        unwrapped(Orders, ())


OWN = ["number", "text"]


@pytest.mark.parametrize(
    ("columns", "payload", "read"),
    [
        (None, None, ["number", "text", "_message_id", "_queue", "_attempt"]),
        (["text", "text"], None, ["text", "_message_id"]),
        ([], None, ["_message_id"]),
        (None, Payload("text"), ["text", "_message_id"]),
        (
            None,
            Payload("text", with_metadata=True),
            ["number", "text", "_message_id", "_queue", "_attempt"],
        ),
        (["number"], Payload("text", with_metadata=True), ["number", "text", "_message_id"]),
    ],
)
@pytest.mark.parametrize("names", [OWN, [*OWN, *METADATA.names]])
def test_the_columns_that_are_read(names, columns, payload, read):
    assert Contract(columns=columns, payload=payload).read(names) == read


def test_columns_of_an_iterator_are_read_for_each_firing():
    given = contract(columns=iter(["text"]))

    assert [given.read(OWN) for _ in range(2)] == [["text", "_message_id"]] * 2


@pytest.mark.parametrize(
    ("columns", "payload", "told"),
    [
        ("text", None, "columns='text': give a list of column names"),
        (["number"], Payload("text"), "use with_metadata=True"),
    ],
)
def test_columns_that_cannot_be_given_are_refused(columns, payload, told):
    with pytest.raises(BadOption, match=told):
        Contract(columns=columns, payload=payload).read(OWN)


def test_a_column_that_the_queue_does_not_have_is_refused():
    check_columns(["orders"], OWN, ["number"])
    with pytest.raises(
        SchemaMismatch,
        match=r"queue 'orders' has no column 'txt'; did you mean 'text'.*number, text",
    ):
        check_columns(["orders"], OWN, ["number", "txt"])


def test_a_payload_that_is_not_text_is_refused():
    check_payload("text", "string", is_text=True)
    with pytest.raises(BadOption, match="payload='number' is bigint, not string or binary"):
        check_payload("number", "bigint", is_text=False)
