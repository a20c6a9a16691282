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


def a_queue(**settings):
    return SimpleNamespace(name="orders", settings=QueueSettings(**settings))


def test_one_ignorable_exception_or_several():
    assert Contract.of(KeyError).ignorable == (KeyError,)
    assert Contract.of([KeyError, OSError]).ignorable == (KeyError, OSError)
    assert Contract.of().ignorable == ()


def test_a_payload_has_its_column_and_its_type():
    payload = Contract.of(payload="json", payload_type=Order, with_metadata=True).payload

    assert payload.column == "json"
    assert payload.with_metadata
    assert Contract.of().payload is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignorable": KeyboardInterrupt}, "is not a subclass of Exception"),
        ({"ignorable": ["KeyError"]}, "'KeyError' is not a subclass of Exception"),
        ({"payload_type": Order}, "need payload="),
        ({"with_metadata": True}, "need payload="),
        ({"payload": 5}, "give the name of the column"),
        ({"timeout": 0}, "use seconds or a duration such as .*, more than 0"),
        ({"timeout": math.inf}, "use seconds or a duration such as .*, more than 0"),
        ({"timeout": True}, "use seconds or a duration such as .*, more than 0"),
        ({"timeout": "soon"}, "use seconds or a duration such as .*, more than 0"),
    ],
)
def test_an_invalid_option_is_refused(options, message):
    with pytest.raises(BadOption, match=message):
        Contract.of(**options)


def test_the_shortest_time_of_the_queues_counts_by_default():
    queues = [a_queue(handler_timeout=5.0), a_queue(handler_timeout=3.0)]

    assert Contract.of().timeout_for(queues) == 3.0


def test_the_time_of_a_call_may_be_a_text_or_a_timedelta():
    assert Contract.of(timeout="2s").timeout == 2.0
    assert Contract.of(timeout=timedelta(minutes=1)).timeout == 60.0


def test_a_call_must_end_well_before_a_sweep():
    queue = a_queue(sweep_after=10.0)

    assert Contract.of(timeout=5).timeout_for([queue]) == 5.0
    with pytest.raises(BadOption, match="use at most 5 seconds, half of sweep_after of queue"):
        Contract.of(timeout=5.1).timeout_for([queue])
