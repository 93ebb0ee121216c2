#!/usr/bin/env bash
# Builds dist/gradvane-*.whl: one file for CPython 3.10 to 3.14 and every torch from 2.9 on, with no compiler and no
# CUDA toolkit where it is installed. It carries prometheus-cpp, yaml-cpp, OpenSSL and the CUDA runtime.
#
#   GRADVANE_WHEEL_DIR      where the file goes; default dist
#   GRADVANE_WHEEL_PYTHONS  which Pythons it is for beside that of .deps/venv, as "3.13 3.14"; default: all there are
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=/dev/null
. .deps/env.sh

python=$GRADVANE_VENV_PYTHON
dist=${GRADVANE_WHEEL_DIR:-dist}
mkdir -p build "$dist"
raw=$(mktemp -d build/wheel.XXXXXX)  # of this build alone: two may run at once
trap 'rm -rf "$raw"' EXIT
PATH=$(dirname "$python"):$PATH
# The same sources give the same file.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH
headers=""
for version in ${GRADVANE_WHEEL_PYTHONS:-3.10 3.11 3.12 3.13 3.14}; do
  found=$(compgen -G "$PWD/.deps/pythons/*/include/python$version" || true)
  if [[ -n $found ]]; then headers+="$found;"; fi
done
if [[ -z $headers ]]; then
  echo "wheel: no other Pythons in .deps/pythons (they come by mvn): for $("$python" --version) alone" >&2
fi
"$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$raw" \
  --config-settings=wheel.py-api=py3 --config-settings=cmake.define.GRADVANE_PYTHON_HEADERS="${headers%;}" .

"$python" -m auditwheel repair --wheel-dir "$dist" "$raw"/gradvane-*.whl >"$raw/repair.log" 2>&1 || {
  cat "$raw/repair.log" >&2
  exit 1
}
ls "$dist"/gradvane-*.whl
