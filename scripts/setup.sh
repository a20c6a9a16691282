#!/bin/sh
# Make the virtual environment and install everything into it: setup.sh <folder of the environment>
# Needs Python 3.11 or later, and no root. PYTHON=/some/python chooses another one.
set -eu
cd "$(dirname "$0")/.."
venv=$1
python=$venv/bin/python

say() { printf 'setup: %s\n' "$*"; }

new_enough() { "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: needs Python 3.11 or later with its venv module (on Debian: apt install python3-venv)," >&2
    echo "setup: tried ${PYTHON:-python3.13, python3.12, python3.11, python3}; or run PYTHON=/some/python make setup" >&2
    return 1
}

install() {
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$python" "$@"
    else
        "$python" -m pip install --quiet --disable-pip-version-check --use-pep517 "$@"
    fi
}

# The tested versions, where they were written by the same version of Python.
locked() {
    if [ "$(head -n 1 requirements-dev.lock)" = "$("$python" -c 'import sys; print("# python %d.%d" % sys.version_info[:2])')" ]; then
        echo "--constraint requirements-dev.lock"
    fi
}

if ! new_enough "$python"; then
    base=$(find_python)
    say "1/3 making $venv with $("$base" --version)"
    "$base" -m venv --clear "$venv"
else
    say "1/3 $venv exists, with $("$python" --version)"
fi

say "2/3 installing ignis and its tools (the first time: minutes, PySpark is large)"
# shellcheck disable=SC2046 # two words, or none
install $(locked) --editable '.[dev]'

if home=$("$python" scripts/java_home.py 2>/dev/null); then
    say "3/3 Java found: $home"
else
    say "3/3 no Java 17 or later here: taking one from PyPI"
    install --editable '.[java]' || true # the next line says what else to do
    say "Java: $("$python" scripts/java_home.py)"
fi
