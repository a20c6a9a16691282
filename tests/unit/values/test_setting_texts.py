"""The text of a setting is its value, here and in docs/settings.md."""

import pytest

from queue_core.values.setting_texts import parse_setting
from queue_core.values.settings import QueueSettings, descriptions


def test_the_text_of_each_default_is_the_default():
    for each in descriptions():
        text = "none" if each.default in (None, ()) else str(each.default)
        settings = QueueSettings.of({each.name: parse_setting(each.name, text)})
        assert getattr(settings, each.name) == each.default, each.name


@pytest.mark.parametrize(("name", "text"), [("sweep_after", "soon"), ("attributes", ",")])
def test_a_text_that_is_no_value_is_told_what_is_allowed(name, text):
    with pytest.raises(
        ValueError, match=r"seconds or a duration|a list of column names, separated"
    ):
        parse_setting(name, text)
