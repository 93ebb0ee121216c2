#!/usr/bin/env bash
# Builds dist/gradvane-*.whl: installs beside the torch it was built for, with no compiler and no CUDA
# toolkit. It carries prometheus-cpp and yaml-cpp; torch's own libraries are found in torch, which is
# loaded first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=/dev/null
. .deps/env.sh

python=$GRADVANE_VENV_PYTHON
mkdir -p build dist
raw=$(mktemp -d build/wheel.XXXXXX)  # of this build alone: two may run at once
trap 'rm -rf "$raw"' EXIT
PATH=$(dirname "$python"):$PATH
"$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$raw" .

# Libraries that come with torch: everything in its own folders, and the C++ runtime's OpenMP beside it.
exclude=(--exclude 'libtorch*' --exclude 'libc10*' --exclude 'libcudart*' --exclude 'libgomp*')
"$python" -m auditwheel repair --wheel-dir dist "${exclude[@]}" "$raw"/gradvane-*.whl >"$raw/repair.log" 2>&1 || {
  cat "$raw/repair.log" >&2
  exit 1
}
ls dist/gradvane-*.whl
