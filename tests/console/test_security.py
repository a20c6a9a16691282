"""Who may ask: every route without a login, with one that may look, and from another site."""

from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from ignis_console.app import OPEN
from ignis_console.guard import HEADERS
from ignis_console.pages import PAGES
from tests.console.clients import ORIGIN, log_in, logged, token
from tests.dump import dump

#: Forms that would act if anybody could send them.
FORMS = {
    "pause": {},
    "resume": {},
    "scale": {"concurrency": "3"},
    "redrive": {},
    "sweep": {"older_than": "0"},
    "sideline": {"all": "1"},
    "cancel": {"job": "1"},
    "reload": {"all": "1", "consumer": "till"},
    "delete": {"all": "1", "confirm": "orders"},
}


def every_route(client, queue):
    """Yield each method and path of the application, from its own table."""
    message = queue.choose("all").ids[0].as_py()
    for route in client.app.routes:
        if isinstance(route, Mount):
            continue
        assert isinstance(route, Route)
        for method in sorted(route.methods):
            yield method, route.path.format(queue=queue.name, message_id=message)


def test_every_route_needs_a_login(serve, store, queue):
    client = serve()
    before = dump(store)
    asked = list(every_route(client, queue))
    assert len(asked) > 40

    for method, path in asked:
        if path in OPEN:
            continue
        answer = client.request(method, path, follow_redirects=False)
        led_to_login = answer.headers.get("location", "").startswith("/login?next=")
        assert answer.status_code == 401 or led_to_login, (method, path)
    assert dump(store) == before


def test_a_login_that_may_look_can_change_nothing(looker, store, queue):
    before = dump(store)
    csrf = token(looker)
    posts = 0

    for method, path in every_route(looker, queue):
        if path in ("/login", "/logout"):
            continue
        fields = FORMS.get(path.rpartition("/")[2], {}) | {"expected": "99", "csrf": csrf}
        if method == "POST":
            posts += 1
            as_form = looker.post(path, data=fields)
            as_json = looker.post(path, json=fields, headers={"X-CSRF-Token": csrf})
            assert (as_form.status_code, as_json.status_code) == (403, 403), path
        else:
            looker.request(method, path, params=fields)
        # Other methods than those of the table change nothing either.
        for other in ("PUT", "PATCH", "DELETE"):
            assert looker.request(other, path).status_code in (403, 405), path
    assert posts > 2 * len(FORMS)
    assert dump(store) == before
    assert logged(looker) == []


def test_a_login_that_may_look_sees_no_action(looker, queue):
    for page in PAGES:
        message = queue.choose("all").ids[0].as_py()
        assert (
            "/actions/"
            not in looker.get(
                page.path.format(queue="orders", message_id=message),
                params={"selector": "number > 1"},
            ).text
        )
    assert looker.get("/queues/orders/actions/delete").status_code == 403


FORGED = {
    "no token": ({}, {"csrf": ""}),
    "another token": ({}, {"csrf": "0" * 64}),
    "another origin": ({"Origin": "https://evil.example"}, {}),
    "another port": ({"Origin": "http://localhost:9999"}, {}),
    "no origin at all": ({"Origin": "null"}, {}),
    "a form of another site": ({"Sec-Fetch-Site": "cross-site"}, {}),
    "a form of another port": ({"Sec-Fetch-Site": "same-site"}, {}),
    "another host": ({"Host": "evil.example"}, {}),
    "another kind of body": ({"Content-Type": "text/plain"}, {}),
}


def test_a_forged_request_is_refused(operator, store, queue):
    path = "/queues/orders/actions/pause"
    form = {"csrf": token(operator), "expected": "99"}
    another = TestClient(operator.app, base_url=ORIGIN)
    log_in(another)
    operator.get("/queues/orders")
    before = dump(store)

    for headers, fields in [*FORGED.values(), ({}, {"csrf": token(another)})]:
        answer = operator.post(path, data=form | fields, headers=headers)

        assert answer.status_code in (403, 415, 421)
        assert dump(store) == before
    right = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
    answer = operator.post(path, data=form, headers=right, follow_redirects=False)
    assert (answer.status_code, queue.refresh().info.is_paused) == (303, True)


def test_each_answer_has_the_headers_that_protect_it(operator):
    for path in ["/login", "/", "/api/queues", "/static/console.js", "/nowhere"]:
        answer = operator.get(path)

        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert "'unsafe-inline'" not in answer.headers["Content-Security-Policy"]
        assert ("no-store" in answer.headers["Cache-Control"]) == (path != "/static/console.js")


def test_another_site_may_link_here_but_not_read(operator):
    cross = {"Sec-Fetch-Site": "cross-site"}

    assert operator.get("/", headers=cross | {"Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert operator.get("/", headers=cross | {"Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert operator.get("/api/queues", headers=cross).status_code == 403


def test_a_name_that_was_bound_to_this_address_is_refused(serve):
    client = serve(names=frozenset({"Queues.example"}))

    for host in ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io"]:
        assert client.get("/login", headers={"Host": host}).status_code == 421
    assert client.get("/login", headers={"Host": "queues.EXAMPLE:443"}).status_code == 200


def test_a_script_is_refused_in_json(operator):
    for status, headers in [
        (421, {"Host": "evil.example"}),
        (403, {"Origin": "https://evil.example"}),
        (403, {"Sec-Fetch-Site": "cross-site"}),
        (413, {"Content-Length": "9999999"}),
    ]:
        for path in ("/api/queues/orders/actions/pause", "/queues/orders/actions/pause"):
            answer = operator.post(path, content=b"", headers=headers)
            kind = "application/json" if path.startswith("/api") else "text/plain; charset=utf-8"
            assert (answer.status_code, answer.headers["content-type"]) == (status, kind)
            if path.startswith("/api"):
                assert sorted(answer.json()) == ["error", "message"]


def test_a_large_body_is_refused(operator, queue):
    answer = operator.post("/queues/orders/actions/pause", data={"csrf": "x" * (1 << 20)})
    chunks = (b"x" * 65536 for _ in range(20))
    streamed = operator.post("/queues/orders/actions/pause", content=chunks)

    assert answer.status_code == 413
    assert streamed.status_code == 413


def test_no_file_but_the_static_ones_is_served(operator):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/", "/static/none.css"):
        assert operator.get(path).status_code in (400, 404)


def test_a_body_that_cannot_be_read_is_refused(operator, queue):
    for body, said in [
        ("[" * 100_000, "nested too deeply"),
        ('{"ids": ' + "[" * 900 + "]" * 900 + "}", "use a text or a number"),
        ('{"ids": {"a": 1}}', "use a text or a number"),
        ('{"ids": [1, true]}', "use a text or a number"),
        ('{"concurrency": [5]}', "only ids may be a list"),
        ('{"expected": true}', "not true or false"),
        ('{"expected": false}', "not true or false"),
        ('{"expected": 99, "expected": 1}', "'expected' is given twice"),
        ('{"selector": "\\ud800"}', "not valid Unicode"),
        ('{"\\ud800": 1}', "not valid Unicode"),
        ("{", "is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"expected": ' + "9" * 5000 + "}", "is not JSON"),
        ("expected=1&expected=99", "'expected' is given twice"),
    ]:
        kind = "x-www-form-urlencoded" if body.startswith("expected") else "json"
        headers = {"Content-Type": f"application/{kind}", "X-CSRF-Token": token(operator)}

        answer = operator.post("/api/queues/orders/actions/pause", content=body, headers=headers)

        assert answer.status_code == 400
        assert said in answer.json()["message"]
        assert not queue.refresh().info.is_paused


def test_a_field_that_is_given_twice_in_an_address_is_refused(operator, queue):
    twice = "selector=number<2&selector=number<4"

    answer = operator.get(f"/api/queues/orders/actions/delete?{twice}")

    assert answer.status_code == 400
    assert "'selector' is given twice" in answer.json()["message"]


def test_a_post_without_a_body_is_no_failure_of_the_console(operator):
    bare = operator.post("/logout")
    other = operator.post("/logout", content="x", headers={"Content-Type": "text/plain"})

    assert (bare.status_code, other.status_code) == (403, 415)
    assert "The console has failed" not in bare.text + other.text
    assert operator.get("/api/queues").status_code == 200
