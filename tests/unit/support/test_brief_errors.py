"""Errors that Spark shows: ours with one frame, others as they are."""

import traceback
from collections.abc import Iterator

import pytest

from queue_core.errors import BadOption
from queue_core.support.brief_errors import briefly, briefly_yielded


@briefly
def divide(number: int) -> float:
    try:
        return 1 / number
    except ZeroDivisionError as error:
        raise BadOption("number=0: use another number") from error


@briefly_yielded
def quotients(*numbers: int) -> Iterator[float]:
    return (divide.__wrapped__(number) for number in numbers)


CALLS = [divide, lambda number: list(quotients(2, number))]


@pytest.mark.parametrize("call", CALLS)
def test_an_error_of_ours_has_one_frame_and_no_cause(call):
    with pytest.raises(BadOption) as caught:
        call(0)
    # Those of this test, and the frame that raises it.
    lines = traceback.format_exception(caught.value)
    assert "".join(lines).count("File ") == (2 if call is divide else 3)
    assert "ZeroDivisionError" not in "".join(lines)
    assert lines[-1] == "queue_core.errors.BadOption: number=0: use another number\n"


@pytest.mark.parametrize("call", CALLS)
def test_other_errors_keep_their_frames(call):
    with pytest.raises(TypeError) as caught:
        call("1")
    assert "return 1 / number" in "".join(traceback.format_exception(caught.value))


def test_results_and_names_stay():
    assert divide(2) == 0.5
    assert list(quotients(2, 4)) == [0.5, 0.25]
    assert (divide.__name__, quotients.__name__) == ("divide", "quotients")
