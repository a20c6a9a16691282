"""The reference pages agree with the code."""

import pytest

from scripts import api_page, cli_page, options_page, settings_page


@pytest.mark.parametrize("script", [api_page, cli_page, options_page, settings_page])
def test_the_page_is_up_to_date(script) -> None:
    assert script.PAGE.read_text() == script.page(), "run `make docs`"
