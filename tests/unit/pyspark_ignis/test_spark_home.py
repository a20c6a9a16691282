"""A home for Spark with links: complete, made once, and none where there is nothing to gain."""

import pytest

from pyspark_ignis.spark_home import home_with_bytecode


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
