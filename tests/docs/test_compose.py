"""The image and compose.yaml of examples/compose: consistent, and each command works.

There is no Docker where the tests run. So they read the files, and run each command of the services
with its environment, a PostgreSQL and an S3 server of the tests.
"""

import os
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from queue_core import Store
from scripts.cli_page import every_command
from tests.servers import object_store
from tests.tree import ROOT

FOLDER = ROOT / "examples/compose"
COMPOSE = yaml.safe_load(FOLDER.joinpath("compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: each for name, each in SERVICES.items() if each["image"] == "ignis"}
DOCKERFILE = FOLDER.joinpath("Dockerfile").read_text()
PAGE = ROOT.joinpath("docs/how-to/containers.md").read_text()


def environment(name: str) -> dict[str, str]:
    """What compose gives a service, with the defaults of its variables."""
    given = SERVICES[name]["environment"]
    return {key: re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", value) for key, value in given.items()}


def test_it_has_what_a_trial_needs():
    assert set(SERVICES) == {"database", "storage", "prepare", "land", "worker", "table", "console"}
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    assert [name for name in SERVICES if f"`{name}`" not in PAGE] == []


def test_what_services_name_exists():
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        mounted = {each.partition(":")[0] for each in service.get("volumes", [])}
        assert mounted <= set(COMPOSE["volumes"]), name
        for other, when in service.get("depends_on", {}).items():
            if when["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other]
    for name, service in OURS.items():
        built = service["build"]
        context = FOLDER.joinpath(built["context"]).resolve()
        assert context == ROOT
        assert context.joinpath(built["dockerfile"]).is_file(), name


def test_images_have_versions_and_servers_keep_their_data():
    for name, service in SERVICES.items():
        if name not in OURS:
            assert re.search(r":.*\d", service["image"]), service["image"]
            assert service["volumes"], name


def test_only_this_machine_reaches_what_is_published():
    published = [port for each in SERVICES.values() for port in each.get("ports", [])]

    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_the_services_have_the_servers_that_are_there():
    for name in OURS:
        given = environment(name)
        user, password = SERVICES["database"]["environment"]["POSTGRES_USER"], "only-for-a-trial"
        assert (
            given["IGNIS_CATALOG"] == f"postgresql+psycopg://{user}:{password}@database:5432/shop"
        )
        assert given["AWS_ENDPOINT_URL"] == "http://storage:9000"
        assert given["AWS_ACCESS_KEY_ID"] == environment("storage")["MINIO_ROOT_USER"]
        assert given["AWS_SECRET_ACCESS_KEY"] == environment("storage")["MINIO_ROOT_PASSWORD"]


def test_the_options_of_the_commands_exist():
    known = every_command().commands
    for name, service in OURS.items():
        program, first, *rest = service["command"]
        if program == "python":
            assert FOLDER.joinpath(first).is_file(), name
            continue
        assert program == "ignis"
        options = {option for each in known[first].params for option in each.opts}
        assert {word for word in rest if word.startswith("--")} <= options, name


def test_the_image_is_made_of_files_that_its_build_sees():
    ignored = FOLDER.joinpath("Dockerfile.dockerignore").read_text().splitlines()
    seen = [line[1:] for line in ignored if line.startswith("!")]
    lines = re.sub(r"\\\n\s*", " ", DOCKERFILE).splitlines()

    assert "*" in ignored
    assert [name for name in seen if not [*ROOT.glob(name)]] == []
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            *sources, _ = line.split()[1:]
            assert {*sources} - {"."} <= {*seen}, line
    project = ROOT.joinpath("pyproject.toml").read_text()
    packages = re.search(r"^packages = \[(.+)\]$", project, re.MULTILINE)
    assert {*re.findall(r'"(\w+)"', packages[1])} <= {*seen}
    for written in re.findall(r'^(?:readme = |license-files = \[)"([^"]+)"', project, re.MULTILINE):
        assert written in seen


def test_the_image_does_not_run_as_root():
    users = re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)

    assert users == ["10001"]
    assert DOCKERFILE.index("USER 10001") > DOCKERFILE.rindex("RUN ")
    assert all(":3" in each for each in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))


def test_the_page_says_what_was_not_tried():
    assert "nobody has built the image" in " ".join(PAGE.split())


@pytest.mark.nightly
def test_each_command_does_what_the_page_says(postgres, tmp_path):
    """The documents of the first file get into the table, each once; empty ones are dead."""
    with postgres.database() as catalog, object_store() as storage:
        given = {
            **environment("worker"),
            "IGNIS_CATALOG": catalog,
            "AWS_ENDPOINT_URL": f"http://{storage.endpoint}",
        }

        def run(name: str, *more: str) -> None:
            words = [word.replace("/data", str(tmp_path)) for word in OURS[name]["command"]]
            done = subprocess.run(
                [*words, *more], cwd=FOLDER, capture_output=True, text=True, timeout=240,
                env={**ours(), **given},
            )  # fmt: skip
            assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-3000:]}"

        run("prepare")
        run("prepare")  # what is there stays
        run("land", "--once")
        with ThreadPoolExecutor(2) as both:
            [each.result() for each in [both.submit(run, "worker", "--drain") for _ in range(2)]]
        run("table", "--once")

        table = ds.dataset(tmp_path / "summaries", format="parquet").to_table()
        numbers = table.column("document").to_pylist()
        assert sorted(numbers) == [number for number in range(1000) if number % 9]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            with Store.open() as store:
                failed = store.view("sideline", "documents").to_pylist()
        assert {(row["kind"], row["dead"]) for row in failed} == {("rejected", True)}
        assert len(failed) == 1000 - len(numbers)
        assert serves_console({**ours(), **given})


def ours() -> dict[str, str]:
    """The environment of the tests, in which programs find this ignis."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
    }


def serves_console(given: dict[str, str]) -> bool:
    """Start the console as its service does, on a free port, and ask for the page of logins."""
    words = [*OURS["console"]["command"], "--port", "0"]
    with subprocess.Popen(
        words, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as console:
        try:
            for line in console.stdout:
                if found := re.search(r"http://[\w.]+:(\d+)\S*", line):
                    address = f"http://127.0.0.1:{found[1]}/"
                    with urllib.request.urlopen(address, timeout=30) as answer:
                        return bool(answer.status == 200)
        finally:
            console.terminate()
    return False
