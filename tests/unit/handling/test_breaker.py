"""`Breaker`: its arguments, and its text form."""

import pytest

from queue_core.errors import BadOption
from queue_core.handling.breaker import Breaker, name_for, text_of


def is_up():
    return True


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"share": 1, "of": 1, "pause": 0.1, "max_pause": 86_400},
        {"name": "shop", "check": "os:getcwd"},
    ],
)
def test_the_text_form_reads_back(given):
    breaker = Breaker(**given)

    assert Breaker.parse(str(breaker)) == breaker


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"share": 0}, "share=0"),
        ({"share": 1.1}, "share=1.1"),
        ({"share": True}, "share=True"),
        ({"of": 0}, "of=0"),
        ({"of": 2.5}, "of=2.5"),
        ({"pause": 0}, "pause=0"),
        ({"pause": float("nan")}, "pause=nan"),
        ({"pause": 5}, "max_pause=4 is less than pause=5"),
        ({"name": "n" * 201}, "1 to 200 characters"),
        ({"check": "no path"}, "check='no path'"),
        ({"check": 3}, "check=3"),
    ],
)
def test_arguments_out_of_range_are_refused(given, told):
    with pytest.raises(BadOption, match=told):
        Breaker(**given)


@pytest.mark.parametrize("text", ["", "[]", '{"oof": 3}', '{"of": 0}'])
def test_other_texts_are_refused(text):
    with pytest.raises(BadOption, match="breaker"):
        Breaker.parse(text)


def test_a_check_is_imported_by_its_path():
    assert Breaker(check="os:getcwd").asks()()
    assert Breaker(check=is_up).asks() is is_up
    assert Breaker().asks() is None
    for path in ("no.such.module:x", "os.path:no_such_name", "os.path:sep"):
        with pytest.raises(BadOption, match="check="):
            Breaker(check=path).asks()


def test_any_breaker_can_be_printed_and_only_some_can_be_sent():
    local = Breaker(of=4, check=lambda: True)
    assert '"of": 4' in str(local)
    assert "<lambda>" in str(local)
    with pytest.raises(BadOption, match="has no import path"):
        text_of(local)
    assert text_of(Breaker(of=4)) == str(Breaker(of=4))


def test_a_handler_of_a_sideline_has_the_breaker_of_its_queue():
    """A sink may name the queue where its source names the sideline."""
    assert name_for(["shop_SIDELINE", "orders_SIDELINE"]) == name_for(["orders", "shop"])
    assert name_for(["orders", "shop"]) == "orders,shop"
