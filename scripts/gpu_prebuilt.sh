#!/usr/bin/env bash
# Builds here what a machine with a GPU would build for minutes, and collects it in .deps/gpu-prebuilt: the programs
# and Python scripts labelled gpu, the benchmark of the pass, and the Python package. There, bench/gpu/prebuilt.py
# runs them. The torch there must be of the version that .deps/venv has, and the C library as new as this one's.
#
#   GRADVANE_GPU_PYTHON_VERSION  of the Python there; default 3.12
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=/dev/null
. .deps/env.sh

version=${GRADVANE_GPU_PYTHON_VERSION:-3.12}
build=build/release
bundle=.deps/gpu-prebuilt
limit_mb=60

headers=$(compgen -G "$PWD/.deps/pythons/*/include/python$version" | head -1 || true)
if [[ -z $headers ]]; then
  echo "[gpu-prebuilt] error: no headers of Python $version in .deps/pythons; run make deps" >&2
  exit 1
fi
minor=${version#3.}
"$GRADVANE_CMAKE" --preset release -DGRADVANE_PYTHON_HEADERS="$headers" >/dev/null
tests=$("$GRADVANE_VENV_PYTHON" -B bench/gpu/prebuilt.py --list "$GRADVANE_CTEST" "$build")
programs=(cuda_pass_bench char_gpt sync_probe)
for name in $tests; do
  [[ $name == python_* || $name == harm_* ]] || programs+=("$name")
done
"$GRADVANE_CMAKE" --build --preset release --target "${programs[@]}" gradvane_package \
  "gradvane_native_3$minor" "gradvane_recording_3$minor" gradvane_inject

part=$(mktemp -d build/gpu-prebuilt.XXXXXX)
# The other builds in this folder are for one Python.
trap 'rm -rf "$part"; "$GRADVANE_CMAKE" --preset release -DGRADVANE_PYTHON_HEADERS= >/dev/null' EXIT
mkdir -p "$part"/{bin,lib,libs,python}
for name in "${programs[@]}"; do strip -o "$part/bin/$name" "$build/bin/$name"; done
for library in "$build"/lib/*.so; do strip -o "$part/lib/${library##*/}" "$library"; done
cp -rL "$build/python/gradvane" "$part/python/"
find "$part/python" -name __pycache__ -prune -exec rm -rf {} +
find "$part/python" -name '*.cpython-*.so' ! -name "*cpython-3$minor*" -delete
find "$part/python" -name '*.so' -exec strip {} +
# Libraries of this system that a bare one lacks.
ldd "$build/bin/agent_cuda_test" | awk '/prometheus-cpp|yaml-cpp/ { print $3 }' | xargs -r cp -Lt "$part/libs"
printf '%s\n' "$tests" >"$part/tests"
git describe --always --dirty --abbrev=12 >"$part/commit"

rm -rf "$bundle"
mkdir -p "$bundle"
tar czf "$bundle/gpu-prebuilt.tgz" -C "$part" .
kilobytes=$(du -sk "$bundle" | cut -f1)
if ((kilobytes > limit_mb * 1024)); then
  echo "[gpu-prebuilt] error: $bundle holds $((kilobytes / 1024)) MB, more than $limit_mb" >&2
  exit 1
fi
echo "[gpu-prebuilt] $(wc -w <<<"$tests") tests, $((kilobytes / 1024)) MB in $bundle"
