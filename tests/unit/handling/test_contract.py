"""The options of a handler: refusals, and the time limit of a call."""

import math
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace

import pytest

from queue_core.errors import BadOption
from queue_core.handling.contract import Contract
from queue_core.values.settings import QueueSettings


@dataclass
class Order:
    """A payload."""

    number: int


def contract(**options):
    return Contract.of(bool, **options)


def a_queue(**settings):
    return SimpleNamespace(name="orders", settings=QueueSettings(**settings))


def test_one_ignorable_exception_or_several():
    assert contract(ignorable=KeyError).ignorable == (KeyError,)
    assert contract(ignorable=[KeyError, OSError]).ignorable == (KeyError, OSError)
    assert contract().ignorable == ()


def test_a_payload_has_its_column_and_its_type():
    payload = contract(payload="json", payload_type=Order, with_metadata=True).payload

    assert payload.column == "json"
    assert payload.with_metadata
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


def test_the_time_of_a_call_may_be_a_text_or_a_timedelta():
    assert contract(handler_timeout="2s").timeout == 2.0
    assert contract(handler_timeout=timedelta(minutes=1)).timeout == 60.0


def test_a_call_must_end_well_before_a_sweep():
    queue = a_queue(sweep_after=10.0)

    assert contract(handler_timeout=5).timeout_for([queue]) == 5.0
    with pytest.raises(BadOption, match="use at most 5 seconds, half of sweep_after of queue"):
        contract(handler_timeout=5.1).timeout_for([queue])
