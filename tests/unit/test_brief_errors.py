"""Errors that Spark shows: ours with one frame, others as they are."""

import traceback

import pytest

from queue_core.brief_errors import briefly
from queue_core.errors import BadOption


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
