"""A Chromium of the machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

#: Names of the browser and its driver, in the order of preference.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRIVERS = ("chromedriver", "chromium.chromedriver")


def found(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def needs_browser() -> tuple[str, str]:
    """Return the paths of a browser and its driver; skip the test without them."""
    browser, driver = found(BROWSERS), found(DRIVERS)
    if browser is None or driver is None:
        pytest.skip("no Chromium with its driver (on Debian: apt install chromium chromium-driver)")
    return browser, driver


@contextmanager
def started() -> Iterator[webdriver.Chrome]:
    """Start a browser without a screen."""
    browser, driver = needs_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def look(chrome: webdriver.Chrome, width: int, *, dark: bool) -> None:
    """Set the width of the page, and whether it is dark."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    # A colour that is on its way from one scheme to the other is neither.
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})
