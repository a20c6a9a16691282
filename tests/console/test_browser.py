"""Every page and action in Chromium: by mouse and by keyboard, without an error in its console."""

import re
import sqlite3
import threading
import time
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files

import pyarrow.compute as pc
import pytest

pytest.importorskip("selenium")
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from ignis_console.rendering import label
from queue_core import Store
from queue_core.upkeep.tasks.sample import sample
from tests.console import browser, clients
from tests.dump import load_earlier
from tests.factories import make_filled, make_queue, orders
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("browser")]

SCRIPT = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"


@pytest.fixture(scope="module")
def chrome():
    with browser.started() as started:
        started.implicitly_wait(30)
        yield started


@pytest.fixture(scope="module")
def folder(chrome, tmp_path_factory):
    """A store; it is asked for after the browser, so that nothing is made without one."""
    return tmp_path_factory.mktemp("console") / "store"


@pytest.fixture(scope="module")
def store(folder):
    with Store.open(folder) as opened:
        make_queue(opened, "mail", shards=4).load(orders(5))
        # As long as a name may be, and with a problem.
        make_queue(opened, "W" * 128).admin.pause()
        topic = make_queue(opened, "topic", log="7 days", message_expiry="1 minute")
        make_queue(opened, "other-topic", log="7 days")
        opened.subscribe("billing", to="topic", late="3 days, 100 GB").admin.snapshot("before-v2")
        opened.subscribe("large", to="topic", selector="number >= 10")
        opened.subscribe("largest", to="large", selector="number >= 15", late="2 hours")
        opened.subscribe("report", to="topic").admin.detach()
        opened.subscribe("letters", to="other-topic")
        topic.load(orders(20))
        sample(opened.catalog)
        yield opened


@pytest.fixture(scope="module")
def site(store, folder):
    """The address of the console, at which the browser is logged in."""
    with clients.console(folder) as (_, address):
        yield address


@pytest.fixture
def queue(store, request):
    """A queue of the test's own, with messages in every state."""
    name = f"orders-{time.monotonic_ns()}"
    made = make_filled(store, 12, name, shards=2)
    firing = made.fire(6, consumer=store.consumer(f"till-{name}", beats=True))
    made.delete(firing.ids[:2])
    made.sideline(firing.ids[2:4], SCRIPT + "\nline 2", kind="exception")
    yield made
    made.admin.deactivate()


@pytest.fixture
def page(chrome, site):
    """A browser that is logged in, at a wide and light first page."""
    chrome.get(site)
    browser.look(chrome, 1280, dark=False)
    chrome.root = site.partition("/login")[0]
    chrome.get_log("browser")
    yield chrome
    errors = [each for each in chrome.get_log("browser") if each["level"] == "SEVERE"]
    assert errors == []
    assert chrome.execute_script("return window.ran") is None


def pages_of(queue):
    aside = queue.store.view("sideline", queue.name)
    message = aside.column("message_id")[0].as_py()
    at = f"/queues/{queue.name}"
    return {
        "queues": "/",
        "problems": "/problems",
        "log": "/log",
        "queue": at,
        "sideline": f"{at}/sideline",
        "group": f"{at}/sideline?group=1&kind=exception&reason={SCRIPT.replace(' ', '+')}",
        "messages": f"{at}/messages?selector=number+%3E+1",
        "message": f"{at}/messages/{message}",
        "delete": f"{at}/actions/delete?all=1",
        "redrive": f"{at}/actions/redrive",
        "redrives": "/redrives",
        "in flight": f"{at}/messages?state=in+flight",
        "topic": "/queues/topic",
        "reader": "/queues/largest",
    }


def css(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def wait(page, condition, seconds=PATIENCE):
    # The page may replace an element between two looks at it.
    replaced = [StaleElementReferenceException]
    return WebDriverWait(page, seconds, 0.05, replaced).until(condition)


def text_of(page, selector):
    """The text of an element, which the page may replace meanwhile."""
    return wait(page, lambda _: css(page, selector).text)


def violations(page, **options):
    """The findings of axe."""
    result = page.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run({resultTypes: ['violations'], ...arguments[0]}).then(r => done(r.violations))",
        options,
    )
    return [
        (each["id"], [node["html"] for node in each["nodes"]][:3])
        for each in result
        if each["impact"] != "minor"
    ]


def test_each_page_is_accessible_and_fits(page, queue):
    """Axe finds no fault, nor colours alike in the dark; narrow, no page scrolls aside."""
    axe = files(pytest.importorskip("axe_core_python")).joinpath("axe.min.js").read_text()
    found = []
    for name, path in pages_of(queue).items():
        page.get(page.root + path)
        page.execute_script(axe)
        found += [(name, each) for each in violations(page)]
        browser.look(page, 1280, dark=True)
        found += [(name, "dark", each) for each in violations(page, runOnly=["color-contrast"])]
        for width in (360, 1280):
            browser.look(page, width, dark=False)
            across = page.execute_script("return document.documentElement.scrollWidth")
            found += [(name, width, across)] if across > width else []

    assert found == []


def test_the_page_follows_the_store_without_a_shift(page, store, queue):
    page.get(page.root + f"/queues/{queue.name}")
    page.execute_script(
        "window.same = 1; window.shift = 0; new PerformanceObserver(list => {"
        "for (const each of list.getEntries()) window.shift += each.value"
        "}).observe({type: 'layout-shift', buffered: true})"
    )
    focused = page.execute_script("document.querySelector('.actions a').focus();"
                                  "return document.activeElement.textContent")  # fmt: skip
    wait(page, lambda _: css(page, "#totals dd").text == "6")

    queue.load(orders(4, first=100))

    wait(page, lambda _: css(page, "#totals dd").text == "10")
    assert page.execute_script("return window.same") == 1
    assert page.execute_script("return document.activeElement.textContent") == focused
    assert page.execute_script("return window.shift") < 0.01


def test_a_topic_and_its_readers_lead_to_each_other_and_follow_the_store(page, store):
    page.get(page.root + "/queues/topic")
    rows = css(page, "#readers").text.splitlines()
    assert [row.split()[0] for row in rows] == [
        "billing", "large", "largest", "report", "billing@before-v2"
    ]  # fmt: skip
    assert "3 days, 100 GB, detach" in rows[0]
    assert rows[3].startswith("report detached 0 ")
    assert "letters" not in css(page, "main").text

    store.queue("topic").load(orders(5, first=20))
    wait(page, lambda _: css(page, "#readers").text.startswith("billing 25 "))
    assert "25 messages and " in text_of(page, "#log")
    css(page, "#readers a[href='/queues/largest']").click()
    wait(page, lambda _: "Reads the log of topic" in css(page, "main").text)
    assert text_of(page, "#readers").startswith("largest (number >= 10) AND (number >= 15) at most")
    page.find_element(By.LINK_TEXT, "topic").click()
    wait(page, lambda _: page.current_url == page.root + "/queues/topic")


#: Widths at which the strip of figures breaks into other rows.
WIDTHS = (360, 430, 560, 700, 860, 1010, 1280)


def tops(page):
    """Where the buttons of actions are."""
    return page.execute_script(
        "return [...document.querySelectorAll('.actions a')]"
        ".map(each => each.getBoundingClientRect().top)"
    )


def tops_by_width(page):
    found = {}
    for width in WIDTHS:
        browser.look(page, width, dark=False)
        found[width] = tops(page)
    return found


def test_no_figure_moves_the_buttons_however_long_it_is(page, store, queue):
    """Ages and problems come, and numbers get more digits, while somebody is about to click."""
    page.get(page.root + f"/queues/{queue.name}")
    before = tops_by_width(page)

    queue.load(orders(1_234_567))
    load_earlier(store, 15 * 60 + 23)
    wait(page, lambda _: "min" in css(page, "#totals").text)

    assert "1,234,573" in text_of(page, "#totals")
    assert "A message has waited for" in text_of(page, "#problems")
    assert tops_by_width(page) == before
    for width in WIDTHS:
        browser.look(page, width, dark=False)
        cut = page.execute_script(
            "return [...document.querySelectorAll('#totals dd')]"
            ".filter(each => each.scrollWidth > each.clientWidth).map(each => each.textContent)"
        )
        assert (width, cut) == (width, [])
    page.get(page.root + "/")
    for width in WIDTHS:
        browser.look(page, width, dark=False)
        wide = page.execute_script(
            "return [...document.querySelectorAll('.queues td')]"
            ".filter(each => each.scrollWidth > each.clientWidth).map(each => each.textContent)"
        )
        assert (width, wide) == (width, [])


@pytest.mark.parametrize("path", ["/", "/queues/{}/sideline"])
def test_each_column_can_be_seen_on_a_narrow_screen(page, queue, path):
    page.get(page.root + path.format(queue.name))
    browser.look(page, 360, dark=False)

    region = css(page, ".scroll")
    headers = page.find_elements(By.CSS_SELECTOR, ".scroll thead th")
    assert len(headers) >= 7
    for each in headers:
        page.execute_script("arguments[0].scrollIntoView({inline: 'end'})", each)
        assert each.is_displayed()
        assert each.rect["width"] > 20
    assert page.execute_script("return arguments[0].scrollLeft", region) > 0
    # The name stays beside the figures.
    assert css(page, ".scroll tbody th").rect["x"] >= region.rect["x"]


def test_a_page_that_cannot_be_read_again_says_since_when_it_is_old(page, tmp_path, store, queue):
    with Store.open(tmp_path / "gone") as opened:
        make_queue(opened, "mail").load(orders(3))
        with clients.console(tmp_path / "gone") as (_, address):
            page.get(address)
            at = css(page, "#fresh time").get_attribute("title")
            for file in (tmp_path / "gone").glob("catalog.db*"):
                file.unlink()
            wait(page, lambda _: "Old figures" in css(page, "#fresh").text)

            said = text_of(page, "#fresh")
            assert f"Old figures of {css(page, '#fresh time').get_attribute('title')}" in said
            # Its segments are still there.
            assert "run `ignis adopt`" in said
            assert text_of(page, "#totals dd") == "1"
            assert at <= css(page, "#fresh time").get_attribute("title")
            page.refresh()
            assert "run `ignis adopt`" in css(page, ".error").text
            # While the console still runs: without it, the page's next request is refused.
            page.get("about:blank")
            failed = [each["message"] for each in page.get_log("browser")]
    assert failed
    assert [each for each in failed if "503" not in each] == []
    # The login at another port has not ended this one.
    page.get(page.root + "/problems")
    assert page.current_url == page.root + "/problems"


def open_action(page, queue, name):
    page.get(page.root + f"/queues/{queue.name}")
    (link,) = page.find_elements(By.CSS_SELECTOR, f".actions a[href$='/actions/{name}']")
    link.click()


FILLED = {
    "scale": {"concurrency": "3"},
    "sideline": {"selector": "number > 0", "reason_text": SCRIPT},
    "delete": {"selector": "number > 0"},
    "redrive": {"selector": "number >= 0"},
}


@pytest.mark.parametrize(
    ("name", "counted", "edited"),
    [
        ("sideline", {"selector": "number = {waiting}"}, {"selector": " OR number > 5"}),
        ("sideline", {"selector": "number = {waiting}"}, {"reason_text": "typed later"}),
        ("scale", {"concurrency": "2"}, {"concurrency": "1"}),
        ("redrive", {}, {"force": None}),
    ],
)
def test_the_button_acts_only_on_what_was_counted(page, queue, name, counted, edited):
    open_action(page, queue, name)
    waiting = queue.choose("all", magazine="main").rows().filter(pc.field("_fired_at").is_null())
    counted = {each: text.format(waiting=waiting["number"][0]) for each, text in counted.items()}
    for field, value in counted.items():
        css(page, f"form[method=get] [name={field}]").send_keys(value)
    css(page, "form[method=get] button").click()
    wait(page, lambda _: "?" in page.current_url)
    wait(page, lambda _: css(page, "form[data-once] button").is_enabled())

    for field, value in edited.items():
        element = css(page, f"form[method=get] [name={field}]")
        element.send_keys(value) if value else element.click()

    assert not css(page, "form[data-once] button").is_enabled()
    assert "Count again first" in css(page, "form[data-once]").text
    css(page, "form[method=get] button").click()
    wait(page, lambda _: css(page, "form[data-once] button").is_enabled())
    assert "Count again first" not in css(page, "form[data-once]").text
    for field, value in (counted | edited).items():
        assert (value or "yes").strip() in css(page, "#counted").text, field


@contextmanager
def hardly_writable(store):
    """Others hold the catalog's file nearly all the time."""
    ended = threading.Event()

    def hold():
        with closing(sqlite3.connect(store.catalog.file, isolation_level=None, timeout=30)) as one:
            while not ended.is_set():
                one.execute("BEGIN IMMEDIATE")
                time.sleep(0.4)
                one.execute("ROLLBACK")
                time.sleep(0.04)

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        yield
    finally:
        ended.set()
        holding.join()


def test_a_long_action_shows_how_far_it_is(page, store):
    queue = make_filled(store, 1200, f"long-{time.monotonic_ns()}", each=1)
    open_action(page, queue, "sideline")
    css(page, "form[method=get] [name=selector]").send_keys("number >= 0")
    css(page, "form[method=get] button").click()
    wait(page, lambda _: "selector" in page.current_url)
    seen = []

    def progress(_):
        text = css(page, "#rows tr").text
        found = re.search(r"([\d,]+) of 1,200 done", text)
        if found is not None:
            seen.append(int(found[1].replace(",", "")))
        return "under way" not in text

    with hardly_writable(store):
        css(page, "form[method=post][data-once] button").click()
        wait(page, lambda _: page.current_url.endswith("/log"))
        wait(page, lambda _: len(set(seen)) > 1 or progress(_))
    wait(page, progress)

    assert seen == sorted(seen)
    assert len(set(seen)) > 1, "the page follows the action"
    assert 0 < seen[-1] < 1200
    row = text_of(page, "#rows tr")
    assert "sideline" in row
    assert "1,200" in row
    queue.admin.deactivate()


def test_reload_and_the_actions_of_a_message(page, store, queue):
    held = queue.choose(selector="number >= 0", magazine="main").rows()
    fired = [row for row in held.to_pylist() if row["_fired_at"] is not None]
    page.get(page.root + f"/queues/{queue.name}/messages/{fired[0]['_message_id']}")
    assert f"till-{queue.name}" in css(page, "main").text

    css(page, "a[href*='/actions/reload']").click()
    # Its holder is filled in.
    wait(page, lambda _: "consumer=till" in page.current_url)
    assert css(page, "#effect-count").text.startswith("1 message ")
    css(page, "form[method=post][data-once] button").click()

    assert css(page, ".notice").text == "1 message reloaded."


def test_pause_and_resume_by_keyboard_alone(page, queue):
    page.get(page.root + "/")

    def press(*keys):
        page.switch_to.active_element.send_keys(*keys)

    def path():
        return page.current_url.removeprefix(page.root)

    press("/")
    press(queue.name, Keys.ENTER)
    wait(page, lambda _: "q=" in path() and page.find_elements(By.CSS_SELECTOR, "a[data-row]"))
    press("j")
    press(Keys.ENTER)
    wait(page, lambda _: path() == f"/queues/{queue.name}")
    for action, paused in (("pause", True), ("resume", False)):
        tab_to(page, lambda at, action=action: at.get_attribute("href") or "", f"/{action}")
        press(Keys.ENTER)
        wait(page, lambda _, action=action: path().endswith(f"/actions/{action}"))
        tab_to(page, lambda at: at.get_attribute("class") or "", "primary")
        press(Keys.ENTER)
        wait(page, lambda _: "done=" in path())
        assert queue.refresh().info.is_paused == paused
    for _ in range(10):
        # On a busy machine, the second key may come too late to belong to the first one.
        with suppress(TimeoutException):
            css(page, "body").send_keys("g", "p")
            wait(page, lambda _: path() == "/problems", 5)
            break
    assert path() == "/problems"
    css(page, "body").send_keys("?")
    assert css(page, "#keys").get_attribute("open")
    press(Keys.ESCAPE)
    wait(page, lambda _: not css(page, "#keys").get_attribute("open"))


def test_a_page_that_was_just_opened_has_no_half_of_a_key(page):
    """`r` reads the figures again at once; `g r` leads to the redrives."""
    path = "return location.pathname"
    for key in "rpql":
        page.get(page.root + "/log")
        # Typed before a driver could, in the first moments of the page.
        page.execute_script(
            "document.body.dispatchEvent(new KeyboardEvent('keydown', "
            "{key: arguments[0], bubbles: true}))",
            key,
        )
        time.sleep(0.3)
        assert page.execute_script(path) == "/log", key


@pytest.mark.parametrize("name", ["scale", "redrive", "sideline", "reload", "delete"])
def test_each_action_by_keyboard_alone(page, queue, name):
    fields = FILLED.get(name, {})

    def press(*keys):
        page.switch_to.active_element.send_keys(*keys)

    def named(at):
        return at.get_attribute("name") or at.text

    def path(address):
        return address.partition("?")[0]

    page.get(page.root + f"/queues/{queue.name}")
    if name == "reload":
        held = queue.choose("all", magazine="main").rows().to_pylist()
        fired = next(row["_message_id"] for row in held if row["_fired_at"] is not None)
        page.get(page.root + f"/queues/{queue.name}/messages/{fired}")
    tab_to(page, lambda at: path(at.get_attribute("href") or ""), f"/actions/{name}")
    press(Keys.ENTER)
    wait(page, lambda _: path(page.current_url).endswith(f"/actions/{name}"))
    before = page.current_url
    for field, value in fields.items():
        tab_to(page, named, field)
        press(value)
    if fields:
        tab_to(page, named, "Count the messages" if name != "scale" else "Show the effect")
        press(Keys.ENTER)
        wait(page, lambda _: page.current_url != before)
    if name == "delete":
        tab_to(page, named, "confirm")
        press("mail", Keys.ENTER)
        assert "/actions/delete" in page.current_url, "the browser refuses another name"
        press(Keys.BACKSPACE * 4, queue.name)
    tab_to(page, named, label(name))
    press(Keys.ENTER)

    wait(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".notice"))
    page.get(page.root + "/log")
    row = text_of(page, "#rows tr")
    # The log has the verbs: a redrive without a rate and another queue is done at once.
    assert {"redrive": "requeue", "scale": "set"}.get(name, name) in row
    assert queue.name in row


def tab_to(page, of, wanted):
    """Press the tab key until the focused element is the wanted one."""
    for _ in range(60):
        page.switch_to.active_element.send_keys(Keys.TAB)
        if of(page.switch_to.active_element).endswith(wanted):
            return
    raise AssertionError(f"no tab leads to {wanted}")


def test_it_works_without_script(page, queue):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_action(page, queue, "redrive")
        css(page, "form[method=post][data-once] button").click()
        assert css(page, ".notice").text == "2 messages redriven."
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@contextmanager
def another_site(html):
    """Serve a page of another origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_site_can_neither_act_nor_frame_nor_read(page, queue, host):
    """From another port of the same name (the cookie is sent), and from another name."""
    forged = (
        f"<form id=f method=post target=answer action='{page.root}/queues/{queue.name}/actions/"
        "pause'><input name=expected value=99></form><iframe name=answer></iframe>"
        f"<iframe id=framed src='{page.root}/'></iframe>"
        "<script>document.getElementById('f').submit(); window.read = 'refused';"
        f"fetch('{page.root}/api/queues', {{credentials: 'include'}})"
        ".then(a => a.text()).then(t => window.read = t).catch(() => {})</script>"
    )
    with another_site(forged) as port:
        page.get(f"http://{host}:{port}/")
        time.sleep(0.7)
        assert page.execute_script("return window.read") == "refused"
        page.switch_to.frame("framed")
        assert "Queues" not in css(page, "body").text
        page.switch_to.default_content()
        refused = page.get_log("browser")
    page.get(page.root + "/")

    assert any("frame-ancestors" in each["message"] for each in refused)
    assert not queue.refresh().info.is_paused


def test_logging_in_and_out(page, site):
    page.get(page.root + "/problems")
    css(page, ".who button").click()
    wait(page, lambda _: page.current_url.endswith("/login"))
    page.get(page.root + "/problems")
    css(page, "[name=password]").send_keys("wrong", Keys.ENTER)
    wait(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".error"))
    css(page, "[name=password]").send_keys(site.partition("key=")[2], Keys.ENTER)

    wait(page, lambda _: page.current_url == page.root + "/problems")
    refused = page.get_log("browser")
    assert all("401" in each["message"] for each in refused)
