#!/bin/sh
# Install the wheel with each Python of the machine, 3.11 and later, and let them all use one store: `make matrix`.
# Each environment is fresh, and has the newest libraries. PYTHONS="python3.12 /some/python" names other Pythons.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=""
for version in 3.11 3.12 3.13 3.14; do
    for candidate in ${PYTHONS:-"python$version" "$HOME/.pyenv/versions/$version".*/bin/python}; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
            found="$found $candidate"
            break
        fi
    done
done
[ -n "$found" ] || { echo "matrix: no Python from 3.11 to 3.14 here" >&2; exit 1; }
for python in $found; do
    version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
    "$python" -m venv "$work/$version"
    pip="$work/$version/bin/python -m pip --quiet --disable-pip-version-check"
    [ -d "$work/dist" ] || $pip wheel --no-deps --wheel-dir "$work/dist" .
    $pip install "$(echo "$work"/dist/*.whl)[cli,postgres,console,metrics,zookeeper]"
    (cd "$work" && "$version/bin/python" - "$work/store" <"$OLDPWD/scripts/matrix_check.py")
    IGNIS_PATH="$work/store" "$work/$version/bin/ignis" fsck >/dev/null
done
