"""A home for Spark with links: complete, made once, and none where there is nothing to gain."""

import pytest

from pyspark_ignis.tuning import JAVA_OPTIONS, given_settings, home_with_bytecode


@pytest.fixture
def package(tmp_path):
    """What a PySpark of pip looks like."""
    folder = tmp_path / "site-packages/pyspark"
    for each in ("bin", "jars", "python/lib"):
        folder.joinpath(each).mkdir(parents=True)
    folder.joinpath("__init__.py").write_text("name = 'pyspark'")
    for each in ("pyspark.zip", "py4j-0.10-src.zip"):
        folder.joinpath("python/lib", each).write_text("an archive")
    return folder


def test_it_has_the_package_where_the_archive_was(package, tmp_path):
    home = home_with_bytecode(package, "4.3.0", tmp_path / "cache")

    assert home.parent == tmp_path / "cache"
    assert home.name.startswith("spark-4.3.0-")
    assert home.joinpath("python/lib/pyspark.zip/pyspark").resolve() == package
    assert home.joinpath("python/lib/py4j-0.10-src.zip").read_text() == "an archive"
    assert home.joinpath("jars").resolve() == package / "jars"
    assert home.joinpath("bin").resolve() == package / "bin"


def test_a_second_call_adds_what_is_new(package, tmp_path):
    home = home_with_bytecode(package, "4.3.0", tmp_path)
    package.joinpath("conf").mkdir()

    assert home_with_bytecode(package, "4.3.0", tmp_path) == home
    assert home.joinpath("conf").resolve() == package / "conf"


def test_each_version_and_each_package_has_a_home_of_its_own(package, tmp_path):
    other = package.rename(package.with_name("pyspark-2"))

    homes = {home_with_bytecode(other, version, tmp_path) for version in ("4.2.0", "4.3.0")}
    other.rename(package)

    assert len({*homes, home_with_bytecode(package, "4.3.0", tmp_path)}) == 3


def test_there_is_none_for_a_spark_that_is_elsewhere(package, tmp_path):
    package.joinpath("spark-distribution").mkdir()
    assert home_with_bytecode(package, "4.3.0", tmp_path) is None

    package.joinpath("spark-distribution").rmdir()
    package.joinpath("python/lib/pyspark.zip").unlink()
    assert home_with_bytecode(package, "4.3.0", tmp_path) is None


def test_there_is_none_where_nothing_can_be_written(package, tmp_path):
    taken = tmp_path / "a file"
    taken.write_text("")

    assert home_with_bytecode(package, "4.3.0", taken) is None


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


def test_a_setting_without_a_value_hides_none_of_the_next_line(tmp_path):
    tmp_path.joinpath("mine.conf").write_text("spark.a=\nspark.b\nspark.c 1\n")
    words = f"--properties-file {tmp_path}/mine.conf pyspark-shell"

    found = given_settings({}, {"PYSPARK_SUBMIT_ARGS": words}, tmp_path)

    assert found == {"spark.a": "", "spark.c": "1"}


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
