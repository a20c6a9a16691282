"""Logins: by key, by a file of passwords, by Basic, and by the header of a proxy."""

import pytest

from ignis_console import auth
from ignis_console.app import own_path
from ignis_console.config import ConsoleOptions
from queue_core import BadOption
from tests.console.clients import ORIGIN, log_in, login_line

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    file = tmp_path_factory.mktemp("users") / "users"
    lines = [login_line(name, role, PASSWORD) for name, role in USERS.items()]
    file.write_text("\n".join(lines))
    return file


USERS = {"ann": "operate", "bob": "look"}


def submit(client, name, password, **headers):
    return client.post(
        "/login", data={"name": name, "password": password}, follow_redirects=False, headers=headers
    )


def test_the_key_logs_in(serve):
    client = serve()
    key = client.app.state.console.auth.key

    assert client.post("/login", data={"password": "wrong"}).status_code == 401
    assert client.get("/login", params={"key": "wrong"}).status_code == 401
    assert client.post("/login", data={"password": key}, follow_redirects=False).status_code == 303
    assert client.get("/api/session").json()["role"] == "operate"


def test_a_password_logs_in_with_its_role(serve, users):
    client = serve(users=users)

    assert submit(client, "ann", "wrong wrong wrong").status_code == 401
    assert submit(client, "eve", PASSWORD).status_code == 401
    answer = submit(client, "bob", PASSWORD)

    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert client.get("/api/session").json()["role"] == "look"
    assert client.get("/login", params={"key": "x"}).status_code == 200


def test_logging_out_ends_the_session(operator):
    cookie = operator.cookies["ignis-8413"]
    csrf = operator.get("/api/session").json()["csrf"]

    assert operator.post("/logout", data={"csrf": "x"}).status_code == 403
    operator.post("/logout", data={"csrf": csrf})
    operator.cookies.set("ignis-8413", cookie)

    assert operator.get("/api/queues").status_code == 401


def test_a_session_ends_after_its_time(operator, monkeypatch):
    assert operator.get("/api/queues").status_code == 200
    now = auth.time.monotonic()
    monkeypatch.setattr(auth.time, "monotonic", lambda: now + auth.SESSION_SECONDS + 1)

    assert operator.get("/api/queues").status_code == 401


def test_who_guesses_is_slowed_down(serve):
    client = serve()
    for _ in range(auth.MOST_FAILURES):
        assert submit(client, "", "guess").status_code == 401

    key = client.app.state.console.auth.key
    assert submit(client, "", "guess").status_code == 429
    assert submit(client, "", key).status_code == 429


def test_scripts_use_basic(serve, users):
    client = serve(users=users)

    assert client.get("/api/queues", auth=("ann", "wrong")).status_code == 401
    assert client.get("/api/queues", auth=("ann", PASSWORD)).status_code == 200
    # The second time, no hash is computed.
    assert client.get("/api/session", auth=("ann", PASSWORD)).json()["csrf"] is None
    for header in ("Basic", "Basic !", "Basic YQ==", "Bearer x"):
        got = client.get("/api/queues", headers={"Authorization": header})
        assert got.status_code == 401


def test_a_remembered_login_of_a_script_waits_too(serve, users, monkeypatch):
    """Otherwise the answer to the right guess differs from the others."""
    monkeypatch.setattr(auth, "MOST_FAILURES", 3)
    client = serve(users=users)
    assert client.get("/api/queues", auth=("ann", PASSWORD)).status_code == 200
    for _ in range(auth.MOST_FAILURES):
        assert client.get("/api/queues", auth=("ann", "guess")).status_code == 401

    assert client.get("/api/queues", auth=("ann", "guess")).status_code == 429
    assert client.get("/api/queues", auth=("ann", PASSWORD)).status_code == 429


@pytest.fixture
def followed(users, tmp_path):
    """A file of logins of the test's own, and what writes it with other lines."""
    file = tmp_path / "users"

    def write(edit):
        file.write_text("".join(edit(line) + "\n" for line in users.read_text().splitlines()))

    write(str)
    return file, write


def test_a_login_that_is_removed_from_the_file_is_out_at_once(serve, queue, followed):
    file, write = followed
    client, script = serve(users=file), ("ann", PASSWORD)
    assert submit(client, "ann", PASSWORD).status_code == 303
    assert client.get("/api/queues/orders/actions/pause").status_code == 200

    write(lambda line: "" if line.startswith("ann:") else line)

    assert client.get("/api/queues/orders/actions/pause").status_code == 401
    assert client.get("/", follow_redirects=False).headers["location"].startswith("/login")
    assert submit(client, "ann", PASSWORD).status_code == 401
    client.cookies.clear()
    assert client.get("/api/queues", auth=script).status_code == 401
    assert client.get("/api/queues", auth=("bob", PASSWORD)).status_code == 200


def test_a_login_has_the_role_and_the_password_that_the_file_has_now(serve, queue, followed):
    file, write = followed
    client, pause = serve(users=file), "/api/queues/orders/actions/pause"
    assert submit(client, "ann", PASSWORD).status_code == 303

    write(lambda line: line.replace("ann:operate", "ann:look"))
    assert client.get(pause).status_code == 403
    write(lambda line: line.replace("ann:look", "ann:operate"))
    assert client.get(pause).status_code == 200

    other = login_line("ann", "operate", "another long password")
    write(lambda line: other if line.startswith("ann:") else line)
    assert client.get(pause).status_code == 401
    client.cookies.clear()
    assert client.get(pause, auth=("ann", PASSWORD)).status_code == 401
    assert client.get(pause, auth=("ann", "another long password")).status_code == 200


@pytest.mark.parametrize("damage", ["garbage", "", None])
def test_a_file_that_cannot_be_read_lets_nobody_in(serve, followed, damage, caplog):
    file, write = followed
    client = serve(users=file)
    assert submit(client, "ann", PASSWORD).status_code == 303

    file.unlink() if damage is None else file.write_text(damage)

    answer = client.get("/api/queues")
    assert answer.status_code == 503
    assert "file of logins" in answer.json()["message"]
    assert client.get("/api/queues", auth=("bob", PASSWORD)).status_code == 503
    assert submit(client, "ann", PASSWORD).status_code == 503
    assert sum(str(file) in each for each in caplog.messages) == 1, "it is logged once"

    write(str)
    assert client.get("/api/queues").status_code == 200, "the session goes on"


def test_a_proxy_tells_who_is_logged_in(serve):
    client = serve(
        address="10.0.0.7",
        proxy_header="X-Forwarded-User",
        proxy_operators=frozenset({"ann"}),
        proxy_addresses=frozenset({"10.0.0.7"}),
    )

    def role(name):
        return client.get("/api/session", headers={"X-Forwarded-User": name}).json().get("role")

    assert (role("ann"), role("bob"), role(" ")) == ("operate", "look", None)
    assert client.get("/api/session").status_code == 401
    assert client.get("/login").status_code == 404
    twice = [("X-Forwarded-User", "ann"), ("X-Forwarded-User", "bob")]
    assert client.get("/api/session", headers=twice).status_code == 401


def test_a_script_behind_a_proxy_acts_with_the_token_of_its_session(serve, queue):
    ann = {"X-Forwarded-User": "ann"}
    proxy = {"proxy_header": "X-Forwarded-User", "proxy_operators": frozenset({"ann"})}
    client = serve(address="127.0.0.1", **proxy)
    path, form = "/api/queues/orders/actions/pause", {"expected": 99}
    csrf = client.get("/api/session", headers=ann).json()["csrf"]
    others = client.get("/api/session", headers={"X-Forwarded-User": "bob"}).json()["csrf"]

    assert client.post(path, json=form, headers=ann | {"X-CSRF-Token": others}).status_code == 403
    refused = client.post(path, json=form, headers=ann)
    done = client.post(path, json=form, headers=ann | {"X-CSRF-Token": csrf})

    assert refused.status_code == 403
    assert "csrf of /api/session in the header X-CSRF-Token" in refused.json()["message"]
    assert (done.status_code, queue.refresh().info.is_paused) == (200, True)


@pytest.mark.parametrize(
    ("machine", "options", "status"),
    [
        ("127.0.0.1", {"proxy_header": "X-Forwarded-User"}, 200),
        # Each form of an address is the same.
        (
            "::1",
            {
                "proxy_header": "X-Forwarded-User",
                "proxy_addresses": frozenset({"0:0:0:0:0:0:0:1"}),
            },
            200,
        ),
        ("10.0.0.7", {"proxy_header": "X-Forwarded-User"}, 401),
        ("127.0.0.1", {}, 401),
    ],
)
def test_a_header_is_believed_from_the_address_of_a_proxy_alone(serve, machine, options, status):
    client = serve(address=machine, **options)

    for path in ("/api/session", *["/"] * bool(options)):
        assert client.get(path, headers={"X-Forwarded-User": "ann"}).status_code == status


def test_tls_makes_the_cookie_secure(serve, tmp_path):
    client = serve(certificate=tmp_path / "c.pem", private_key=tmp_path / "k.pem")
    client.base_url = ORIGIN.replace("http:", "https:")
    log_in(client)

    assert client.get("/api/queues").status_code == 200
    assert "__Host-ignis-8413" in client.cookies
    assert client.get("/").headers["Strict-Transport-Security"]


def test_a_login_at_another_console_of_the_machine_ends_none(serve):
    first, second = serve(), serve()
    second.base_url = ORIGIN.replace("8413", "8414")
    log_in(first)
    # As a browser does, which sends the cookies of a host to all its ports.
    second.cookies.update(first.cookies)
    log_in(second)
    first.cookies.update(second.cookies)
    assert first.get("/api/queues").status_code == 200
    assert second.get("/api/queues").status_code == 200

    csrf = first.get("/api/session").json()["csrf"]
    first.post("/logout", data={"csrf": csrf})
    assert first.get("/api/queues").status_code == 401
    assert second.get("/api/queues").status_code == 200


def test_a_login_at_a_console_in_a_path_of_another_ends_none(serve):
    outer, inner = serve(), serve(root_path="/shop")
    sent = []
    # As a browser does, which sends the cookie of the longer path first.
    for client, root in ((inner, "/shop"), (outer, "")):
        key = client.app.state.console.auth.key
        answer = client.get(f"{root}/login", params={"key": key}, follow_redirects=False)
        sent.append(answer.headers["set-cookie"].partition(";")[0])
        client.cookies.clear()
    headers = {"Cookie": "; ".join(sent)}

    assert outer.get("/api/queues", headers=headers).status_code == 200
    assert inner.get("/shop/api/queues", headers=headers).status_code == 200


def test_a_host_without_a_port_has_a_cookie_too(serve):
    for host in ["localhost", "localhost:²", "localhost:", "[::1]"]:
        client = serve()
        client.headers.encoding = "latin-1"
        client.headers["host"] = host
        log_in(client)

        assert list(client.cookies) == ["ignis"]
        assert client.get("/api/queues").status_code == 200


def test_a_login_leads_to_a_page_of_the_console():
    for text, path in [
        ("/queues/orders?span=day", "/queues/orders?span=day"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("", "/"),
    ]:
        assert own_path(text) == path


def test_options_that_contradict_each_other_are_refused():
    for options in [
        {"host": "0.0.0.0"},
        {"certificate": "a"},
        {"proxy_operators": frozenset({"ann"})},
        {"proxy_header": "X-User", "users": "u"},
        {"proxy_addresses": frozenset({"10.0.0.7"})},
        {"proxy_header": "X-User", "proxy_addresses": frozenset({"nonsense"})},
        {"proxy_header": "X-User", "proxy_addresses": frozenset({"10.0.0.0/8"})},
        *({"proxy_header": name} for name in ("", "bad header:", "X-Usér", "X-User:")),
        *({"proxy_header": name} for name in ("Host", "cookie", "ORIGIN", "Sec-Fetch-Site")),
    ]:
        with pytest.raises(BadOption):
            ConsoleOptions(**options)


def test_the_address_that_is_printed_has_the_name_that_was_given():
    tls = {"certificate": "a", "private_key": "b"}
    for options, url in [
        ({}, "http://127.0.0.1:8505"),
        ({"names": ("q.example",)}, "http://127.0.0.1:8505"),
        ({"host": "0.0.0.0", "plain": True}, "http://127.0.0.1:8505"),
        (
            {"host": "0.0.0.0", "plain": True, "names": ("q.example", "r.example")},
            "http://q.example:8505",
        ),
        ({"host": "::", "names": ("q.example",)} | tls, "https://q.example:8505"),
    ]:
        made = ConsoleOptions(**options)
        assert (made.url(8505), made.is_local) == (url, "host" not in options)
