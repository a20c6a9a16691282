"""The reference pages agree with the code."""

import pytest

from scripts import troubleshooting_page
from scripts.mistakes import SPARK, said_by_spark
from scripts.reference_pages import PAGES
from scripts.troubleshooting_page import section


@pytest.mark.parametrize("script", PAGES)
def test_the_page_is_up_to_date(script) -> None:
    assert script.PAGE.read_text() == script.page(), "run `make docs`"


def test_the_page_of_mistakes_says_what_spark_says(spark) -> None:
    made = section(SPARK, lambda mistake: said_by_spark(mistake, spark))

    assert troubleshooting_page.PAGE.read_text().endswith(made), "run `make docs`"
