"""Plans of queries: what Spark gets to know of the store."""

import pytest

from pyspark_ignis import consume
from pyspark_ignis.query_plan import QueryPlan, checkpoint_folder

NOTHING = dict.fromkeys(
    ("path", "catalog", "storage", "max_messages", "consumer", "trigger", "name")
)


@pytest.mark.parametrize(
    ("environment", "given", "passed_on"),
    [
        ({"IGNIS_PATH": "/env"}, {}, {"path": "file:///env"}),
        ({"IGNIS_PATH": "/env"}, {"path": "/own"}, {"path": "file:///own"}),
        (
            {"IGNIS_PATH": "", "IGNIS_CATALOG": "sqlite:////c", "IGNIS_STORAGE": "/s"},
            {},
            {"catalog": "sqlite:////c", "storage": "/s"},
        ),
        (
            {"IGNIS_CATALOG": "sqlite:////c"},
            {"storage": "/own"},
            {"catalog": "sqlite:////c", "storage": "/own"},
        ),
    ],
)
def test_the_driver_hands_on_the_address_that_its_environment_says(
    monkeypatch, environment, given, passed_on
):
    for variable in ("IGNIS_PATH", "IGNIS_CATALOG", "IGNIS_STORAGE"):
        monkeypatch.setenv(variable, environment.get(variable, ""))
    plan = QueryPlan.of(consume, "orders", "/checkpoint", **NOTHING | given, options={})
    place = {key: plan.source[key] for key in ("path", "catalog", "storage") if key in plan.source}
    assert place == passed_on


def test_a_checkpoint_may_be_in_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")

    assert checkpoint_folder("~/charge") == "/home/ada/charge"


def test_the_driver_hands_on_the_folder_that_it_means_itself(monkeypatch, tmp_path):
    """Spark's Python processes keep the working directory of its start."""
    monkeypatch.chdir(tmp_path)
    apart = {"catalog": "sqlite:///shop.db", "storage": "files"}
    plans = [
        QueryPlan.of(consume, "orders", "/checkpoint", **NOTHING | place, options={}).source
        for place in ({"path": "shop"}, {"path": "file:///data/%24SHOP"}, apart)
    ]

    assert [plan["path"] for plan in plans[:2]] == [
        f"file://{tmp_path}/shop",
        "file:///data/%24SHOP",
    ]
    assert plans[2]["catalog"] == f"sqlite:///{tmp_path}/shop.db"
    assert plans[2]["storage"] == f"{tmp_path}/files"
