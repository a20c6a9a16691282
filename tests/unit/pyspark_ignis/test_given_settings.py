"""What the user has set, in all the places where Spark looks."""

import pytest

from pyspark_ignis.given_settings import JAVA_OPTIONS, given_settings


def test_nothing_is_set(tmp_path):
    assert given_settings({}, {}, tmp_path) == {}


def test_a_file_of_defaults_is_read_from_the_home_of_spark(tmp_path):
    tmp_path.joinpath("conf").mkdir()
    tmp_path.joinpath("conf/spark-defaults.conf").write_text(
        "# spark.not=1\nspark.master  local[2]\nspark.a=b c \nspark.d: e\n\nother f\n"
    )

    assert given_settings({}, {}, tmp_path) == {
        "spark.master": "local[2]",
        "spark.a": "b c",
        "spark.d": "e",
    }


def test_a_variable_names_the_folder_of_the_file(tmp_path):
    tmp_path.joinpath("spark-defaults.conf").write_text("spark.a 1\n")

    found = given_settings({}, {"SPARK_CONF_DIR": str(tmp_path)}, tmp_path / "home")

    assert found == {"spark.a": "1"}


def test_a_file_can_be_an_argument(tmp_path):
    tmp_path.joinpath("mine.conf").write_text("spark.a 1\n")
    words = f"--properties-file {tmp_path}/mine.conf pyspark-shell"

    assert given_settings({}, {"PYSPARK_SUBMIT_ARGS": words}, tmp_path) == {"spark.a": "1"}


def test_the_builder_comes_before_arguments_and_these_before_the_file(tmp_path):
    tmp_path.joinpath("spark-defaults.conf").write_text("spark.a 1\nspark.b 1\nspark.c 1\n")
    environment = {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.b=2 --conf 'spark.c=2 3' pyspark-shell",
    }

    found = given_settings({"spark.c": 4}, environment, tmp_path)

    assert found == {"spark.a": "1", "spark.b": "2", "spark.c": "4"}


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--master yarn pyspark-shell", "spark.master", "yarn"),
        ("--remote sc://host pyspark-shell", "spark.remote", "sc://host"),
        ("--driver-java-options '-Da=1 -Xss4m' pyspark-shell", JAVA_OPTIONS, "-Da=1 -Xss4m"),
        ("--jars a.jar --name x -c spark.a=1=2 pyspark-shell", "spark.a", "1=2"),
    ],
)
def test_arguments_that_have_names_of_their_own(words, name, value, tmp_path):
    assert given_settings({}, {"PYSPARK_SUBMIT_ARGS": words}, tmp_path) == {name: value}
