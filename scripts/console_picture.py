"""Film docs/console.gif, the moving picture of the front page: orders fail, and are redriven.

    python -m scripts.console_picture

The console runs on a real store, in which pools handle messages; a Chromium of the machine shows
it. The figures are as they were; the film shows each of its pictures for a set time. It takes the
minutes before it begins (``--before``) so that the lines of depth and age have something to show.
"""

from __future__ import annotations

import argparse
import io
import logging
import math
import random
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from queue_core import ConsumerPool, Store
from tests.console import browser, clients
from tests.waiting import until

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "console.gif"

WIDTH, HEIGHT, SCALE = 960, 640, 1.25
COLOURS = 96
SCHEMA = pa.schema([("order_id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])
#: Orders that arrive in the film.
ORDERS = 6_000
QUEUES = ("emails", "invoices", "orders")
#: A line of text over the foot of the page, and a pointer; the page allows no style in its HTML.
_OVERLAY = """
    const [text, x, y] = arguments;
    document.documentElement.style.scrollbarGutter = "auto";
    document.body.style.paddingBottom = "60px";
    const put = (id, style) => {
        const made = document.getElementById(id) || document.createElement("div");
        document.body.append(made);
        made.id = id;
        Object.assign(made.style, {position: "fixed", zIndex: 99, ...style});
        return made;
    };
    put("film-text", {left: 0, right: 0, bottom: 0, padding: "12px 24px", background: "#1f2430",
        color: "#fff", fontSize: "19px", fontWeight: "600"}).textContent = text;
    put("film-pointer", {left: x + "px", top: y + "px", width: "20px", height: "26px",
        background: "#111",
        clipPath: "polygon(0 0, 0 85%, 24% 66%, 44% 100%, 58% 93%, 40% 60%, 72% 60%)"});
"""


class Film:
    """The pictures so far, each with the milliseconds for which it is shown."""

    def __init__(self, chrome: webdriver.Chrome) -> None:
        self.chrome = chrome
        self.text = ""
        self.frames: list[Image.Image] = []
        self.shown: list[int] = []
        self._at = (WIDTH * 0.62, HEIGHT * 0.72)

    def shoot(self, milliseconds: int) -> None:
        """Take a picture of the page, with the text and the pointer."""
        self.chrome.execute_script(_OVERLAY, self.text, *self._at)
        picture = Image.open(io.BytesIO(self.chrome.get_screenshot_as_png())).convert("RGB")
        self.frames.append(picture)
        self.shown.append(milliseconds)

    def show(self, selector: str, milliseconds: int) -> WebElement:
        """Scroll to an element, and take a picture."""
        element = self.chrome.find_element(By.CSS_SELECTOR, selector)
        self.chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        self.shoot(milliseconds)
        return element

    def follow(self, times: int, milliseconds: int) -> None:
        """Take a picture of each reading of the figures, some times."""
        for _ in range(times):
            before = self._read_at()
            until(lambda before=before: self._read_at() != before)
            self.shoot(milliseconds)

    def _read_at(self) -> str:
        return str(self.chrome.execute_script("return document.querySelector('#fresh time').title"))

    def click(self, selector: str) -> None:
        """Move the pointer to an element, and click it."""
        element = self.show(selector, 50)
        place = self.chrome.execute_script(
            "const r = arguments[0].getBoundingClientRect(); return [r.x, r.y, r.width, r.height]",
            element,
        )
        x, y = self._at
        to_x, to_y = place[0] + min(place[2] / 2, 60), place[1] + place[3] / 2
        for part in (0.5, 0.95, 1):
            self._at = (x + (to_x - x) * part, y + (to_y - y) * part)
            self.shoot(50)
        self.shown[-1] = 280
        self.chrome.find_element(By.CSS_SELECTOR, selector).click()

    def save(self, path: Path) -> None:
        """Write the film, which repeats."""
        few = self.frames[:: max(1, len(self.frames) // 12)]
        all_of_them = Image.new("RGB", (few[0].width, few[0].height * len(few)))
        for number, frame in enumerate(few):
            all_of_them.paste(frame, (0, number * frame.height))
        palette = all_of_them.quantize(COLOURS, dither=Image.Dither.NONE)
        first, *others = (
            frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames
        )
        first.save(
            path, save_all=True, append_images=others, duration=self.shown, loop=0, disposal=1
        )


class Shop:
    """Three queues, and what happens in them: more comes in for a while, and then less."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_filmed = threading.Event()
        self.is_down = threading.Event()
        self.seconds = 0.02
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._trickle, daemon=True)
        self._rng = random.Random(7)
        self._number = 1_000
        for name in QUEUES:
            store.create_queue(name, SCHEMA, shards=4, retry="Retry(attempts=1)")

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], bool]]:
        """Return the handler of each queue."""

        def charge(order: dict[str, Any]) -> bool:
            time.sleep(self.seconds)
            if order["amount"] > 990:
                raise ValueError("card declined")
            if self.is_down.is_set() and order["customer"] in ("acme", "globex"):
                raise ConnectionError(f"card service answered 503 for order {order['order_id']}")
            return True

        def send(_: dict[str, Any]) -> bool:
            time.sleep(0.02)
            return True

        # The film shows a trace, which would have a folder of this machine.
        code = charge.__code__.replace(co_filename=str(Path(__file__).relative_to(ROOT)))
        charge.__code__ = code
        return dict.fromkeys(QUEUES, send) | {"orders": charge}

    def load(self, queue: str, count: int) -> None:
        """Load that many orders."""
        first, self._number = self._number, self._number + count
        pick = self._rng.choice
        self.store.queue(queue).load(
            [
                {
                    "order_id": number,
                    "customer": pick(("acme", "globex", "initech", "umbrella")),
                    "amount": round(self._rng.uniform(5, 1_000), 2),
                }
                for number in range(first, self._number)
            ]
        )

    def __enter__(self) -> Shop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _trickle(self) -> None:
        while not self._ended.wait(0.5):
            for place, name in enumerate(QUEUES):
                if name == "orders" and self.is_filmed.is_set():
                    continue
                mean = 75 * (1 + math.sin(time.monotonic() / 25 + 2 * place))
                self.load(name, 1 + self._rng.randrange(1 + round(2 * mean)))


def main(arguments: list[str] | None = None) -> None:
    """Film, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=float, default=4, help="minutes before the film")
    parser.add_argument("--out", type=Path, default=PICTURE)
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ignis-film-")))
        store = stack.enter_context(Store.open(folder / "store"))
        shop = stack.enter_context(Shop(store))
        for name, handler in shop.handlers().items():
            stack.enter_context(ConsumerPool(store, name, handler, concurrency=4, batch=50))
        _, address = stack.enter_context(clients.console(folder / "store"))
        chrome = stack.enter_context(browser.started())
        look = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": SCALE, "mobile": False}
        time.sleep(60 * given.before)
        chrome.get(address)
        browser.look(chrome, WIDTH, dark=False)
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", look)
        chrome.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        film = Film(chrome)
        play(film, shop, address.partition("/login")[0])
        film.save(given.out)
    print(
        f"{given.out}: {len(film.frames)} pictures, {sum(film.shown) / 1000:.1f} s, "
        f"{given.out.stat().st_size / 1e6:.2f} MB"
    )


def play(film: Film, shop: Shop, root: str) -> None:
    """Let orders fail while a service is down, and redrive them from the console."""
    film.text = "Queues in a folder: Spark and Python load them, pools of workers handle them."
    film.follow(2, 600)
    shop.is_filmed.set()
    shop.is_down.set()
    shop.seconds = 0.012
    shop.load("orders", ORDERS)
    film.text = f"{ORDERS:,} orders, and the card service is down: what fails is set aside."
    film.follow(8, 270)
    film.click("a[href='/queues/orders']")
    film.follow(1, 500)
    film.click("a[href='/queues/orders/sideline']")
    film.text = "The failures, grouped by what their reasons have in common."
    film.shoot(1200)
    film.click("#rows a[data-row]")
    film.text = "A group: where it was raised, and whose orders they are."
    film.shoot(1500)
    shop.is_down.clear()
    shop.seconds = 0.005
    film.text = "The service is back: redrive the group."
    film.click("a[href*='actions/redrive?group']")
    film.shoot(250)
    film.click("input[name=force]")
    film.shoot(250)
    film.click("#choose button")
    film.show("#effect-count", 800)
    film.click("form[data-once] button.primary")
    film.text = "They go back and are handled. Declined cards stay aside, with their reason."
    film.shoot(700)
    film.chrome.get(root)
    film.follow(5, 270)
    film.shoot(1800)


if __name__ == "__main__":
    logging.getLogger("queue_core").setLevel(logging.CRITICAL)  # of failures, which are meant
    main()
