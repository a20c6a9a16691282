"""The moving picture of the front page is small enough for its readers, and its script works."""

import pytest
from PIL import Image

pytest.importorskip("selenium")

from scripts import console_picture
from tests.console import browser


def assert_fit(path):
    """It is what a front page can show, and a reader has time for."""
    with Image.open(path) as picture:
        shown = []
        for number in range(picture.n_frames):
            picture.seek(number)
            shown.append(picture.info["duration"])
        assert picture.format == "GIF"
        assert picture.info["loop"] == 0
        assert picture.width >= 720
    assert 8_000 <= sum(shown) <= 15_000
    assert path.stat().st_size <= 1_500_000


def test_the_picture_of_the_front_page_is_fit_for_it():
    assert "](docs/console.gif)" in console_picture.ROOT.joinpath("README.md").read_text()
    assert_fit(console_picture.PICTURE)


@pytest.mark.nightly
@pytest.mark.xdist_group("browser")
def test_the_script_films_it_again(tmp_path):
    browser.needs_browser()
    console_picture.main(["--before", "0", "--out", str(tmp_path / "console.gif")])
    assert_fit(tmp_path / "console.gif")
