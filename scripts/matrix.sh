#!/bin/sh
# Install the wheel with each Python of the machine, 3.11 and later, and let them all use one store: `make matrix`.
# Each environment is fresh, and has the newest libraries. Then each gets a PySpark, 3.11 the oldest that the project declares, the
# others the newest. PYTHONS="python3.12 /some/python" names other Pythons, SPARK=4.2.1 another PySpark, and SPARK=none leaves it out.
set -eu
unset PYTHONPATH PYSPARK_PYTHON
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
    case ${SPARK:-$version} in
    none) continue ;;
    3.11.*) spark="4.2.0" ;;
    3.*) spark="4.*" ;;
    *) spark=$SPARK ;;
    esac
    $pip install "$(echo "$work"/dist/*.whl)[spark]" "pyspark==$spark"
    # The environment is not active, so Spark would find another Python.
    (cd "$work" && "$version/bin/python" - "$work/store-$version" "$work/checkpoints-$version" \
        <"$OLDPWD/scripts/matrix_spark.py" 2>"$work/spark.log") || { tail -n 40 "$work/spark.log" >&2; exit 1; }
    IGNIS_PATH="$work/store-$version" "$work/$version/bin/ignis" fsck >/dev/null
done
