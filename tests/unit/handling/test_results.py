"""A handler that returns nothing: when it is refused, and what its user is told."""

from functools import partial

import pytest

from queue_core.errors import BadOption
from queue_core.handling.results import Results, check_on_none, name_of, refusal


def test_unknown_outcomes_are_refused():
    assert check_on_none(None) is None
    assert check_on_none("delete") == "delete"
    with pytest.raises(BadOption, match=r"on_none='delet': .*did you mean 'delete'"):
        check_on_none("delet")
    with pytest.raises(BadOption, match="on_none='reload'"):
        check_on_none("reload")


class Charge:
    def __call__(self, message):
        return True

    def handle(self, message):
        return True


def test_the_error_names_queue_handler_and_remedy():
    assert name_of(partial(Charge().handle)) == "Charge.handle"
    assert name_of(Charge()) == "Charge"
    results = Results()
    assert results.refusal(Charge().handle) is None
    results.none()
    told = str(refusal(results.refusal(Charge().handle), ["orders", "paid"]))
    assert told.startswith("queue 'orders', 'paid': the handler Charge.handle returned None")
    assert "on_none='delete'" in told


def test_a_handler_of_a_sideline_cannot_put_messages_off():
    results = Results()
    assert results.put_off()
    assert not results.refused

    results = Results("delete", may_put_off=False)
    assert not results.put_off()
    assert results.refused
    assert "handler Charge puts messages of the sideline off" in results.refusal(Charge())
