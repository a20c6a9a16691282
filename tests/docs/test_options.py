"""The page of options is what the code says."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_page_of_options_is_up_to_date() -> None:
    script = ROOT / "scripts" / "options_page.py"
    spec = importlib.util.spec_from_file_location("options_page", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    behind = "run `python scripts/options_page.py`"
    assert module.PAGE.read_text() == module.page(), behind
