import pytest

from queue_core.errors import BadOption
from queue_core.values.weights import as_weights, text_of_value


@pytest.mark.parametrize(
    "given",
    [{"b": 2, "a": 0.5}, '{"b": 2, "a": 0.5}', [("b", 2), ["a", 0.5]], {"a": 0.5, "b": 2.0}],
)
def test_weights_are_given_as_a_mapping_pairs_or_json(given):
    assert as_weights(given) == (("a", 0.5), ("b", 2.0))


@pytest.mark.parametrize("given", [None, "", {}, (), "{}"])
def test_none_are_no_weights(given):
    assert as_weights(given) == ()


def test_values_are_named_by_their_texts():
    assert as_weights({7: 1, True: 2, "x": 3}) == (("7", 1.0), ("true", 2.0), ("x", 3.0))
    assert text_of_value(False) == "false"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a=3", "write them as a mapping"),
        ("3", "write them as a mapping"),
        (3, "write them as a mapping"),
        ([("a",)], "write them as a mapping"),
        ({"a": 0}, "the weight of 'a' is 0; use a number from 0.001 to 1000"),
        ({"a": True}, "use a number"),
        ({"a": float("nan")}, "use a number"),
        ({"a": "3"}, "use a number"),
        ({None: 3}, "None is not a text, a whole number or a boolean"),
    ],
)
def test_other_weights_are_refused(given, message):
    with pytest.raises(BadOption, match=message):
        as_weights(given)
