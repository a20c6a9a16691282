"""A class for a database must answer every question."""

import pytest

from queue_core.catalog.databases.interface import Dialect
from queue_core.catalog.databases.sqlite import Sqlite

QUESTIONS = sorted(Dialect.__abstractmethods__)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_class_without_an_answer_cannot_be_used(question):
    answers = {name: getattr(Sqlite, name) for name in QUESTIONS if name != question}
    partial = type("Partial", (Dialect,), answers)

    with pytest.raises(TypeError, match=question):
        partial()
