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


def test_an_error_of_ours_has_one_frame_and_no_cause():
    with pytest.raises(BadOption) as caught:
        divide(0)

    lines = traceback.format_exception(caught.value)
    assert "".join(lines).count("File ") == 2  # this test, and the frame that raises it
    assert "ZeroDivisionError" not in "".join(lines)
    assert lines[-1] == "queue_core.errors.BadOption: number=0: use another number\n"


def test_other_errors_keep_their_frames():
    with pytest.raises(TypeError) as caught:
        divide("1")

    assert "return 1 / number" in "".join(traceback.format_exception(caught.value))


def test_results_and_names_stay():
    assert divide(2) == 0.5
    assert divide.__name__ == "divide"


@briefly_yielded
def quotients(*numbers: int) -> Iterator[float]:
    return (divide.__wrapped__(number) for number in numbers)


def test_an_error_of_ours_in_a_step_has_one_frame_and_no_cause():
    found = quotients(2, 4, 0)
    assert [next(found), next(found)] == [0.5, 0.25]

    with pytest.raises(BadOption) as caught:
        next(found)

    told = "".join(traceback.format_exception(caught.value))
    assert told.count("File ") == 2  # this test, and the frame that raises it
    assert "ZeroDivisionError" not in told


def test_other_errors_of_a_step_keep_their_frames():
    with pytest.raises(TypeError) as caught:
        list(quotients("1"))

    assert "return 1 / number" in "".join(traceback.format_exception(caught.value))
