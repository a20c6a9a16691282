"""Lines of logins: written, read, verified, refused."""

import pytest

from ignis_console import passwords
from ignis_console.passwords import Role
from queue_core import BadOption

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def ann():
    return passwords.line("ann", Role.OPERATE, PASSWORD)


def test_a_login_is_verified(tmp_path, ann):
    file = tmp_path / "users"
    file.write_text(f"# the team\n\n{ann}\n")
    logins = passwords.parse(passwords.read_bytes(file), file)

    assert PASSWORD not in ann
    assert passwords.verify(logins, "ann", PASSWORD).role is Role.OPERATE
    assert passwords.verify(logins, "ann", PASSWORD + " ") is None
    assert passwords.verify(logins, "bob", PASSWORD) is None


def test_two_lines_of_one_password_differ(ann):
    assert passwords.line("ann", Role.OPERATE, PASSWORD) != ann


def bad_lines(line):
    yield "ann"
    yield line.replace("operate", "admin")
    yield line.replace("scrypt", "plain")
    yield line.replace("$32768$", "$32767$")
    yield line.replace("$32768$", "$1073741824$")
    yield line[:-8]
    yield line + "\n" + line
    yield "a:b" + line
    yield ""


def test_a_file_with_a_bad_line_is_refused_by_its_number(tmp_path, ann):
    for text in bad_lines(ann):
        with pytest.raises(BadOption, match=r"users: (line \d|it has no logins)"):
            passwords.parse(text.encode(), tmp_path / "users")
    with pytest.raises(BadOption, match="cannot be read"):
        passwords.parse(b"\xff", tmp_path / "users")
    with pytest.raises(BadOption, match="cannot be read"):
        passwords.read_bytes(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "password"), [("", PASSWORD), ("a:b", PASSWORD), ("ann", "short")]
)
def test_bad_names_and_short_passwords_are_refused(name, password):
    with pytest.raises(BadOption):
        passwords.line(name, Role.LOOK, password)
