#!/usr/bin/env bash
# Installs dist/gradvane-*.whl, the very file, beside several torches in fresh environments, and runs the core of the
# Python tests and the harm suite there. An environment takes some 6 GB, so there is one at a time.
#
#   scripts/test_wheel.sh [<torch version>[@<python, as 3.13>] ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=/dev/null
. .deps/env.sh

wheels=(dist/gradvane-*-py3-none-*.whl)
wheel=${wheels[-1]}
[[ -f $wheel ]] || {
  echo "there is no wheel in dist/: run make wheel" >&2
  exit 1
}
base=$("$GRADVANE_VENV_PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
pairs=("$@")
if ((${#pairs[@]} == 0)); then pairs=(2.15.0 2.13.0 2.11.0 2.9.1 2.14.1@3.10 2.15.0@3.13); fi
core=(tests/python/hooks/{optimizers,interference,threads,own_clip,clipping,scaler,scaler_checks,no_norm,guards,layers,many_optimizers,phases,phase_hooks}_test.py
  tests/python/hooks/custom_metrics_test.py tests/python/governor/{skip,device_skips,rollback,ranks,lockstep}_test.py
  tests/python/distributed/{distributed,meeting}_test.py tests/python/runs/lines_test.py
  tests/python/tracing/{finite_checks,tracing}_test.py tests/python/incidents/incidents_test.py)
harm_groups=(training threads signals endings children files tools)

# The tests' own quick start leaves out parts that torch 2.15 cannot do without.
export WHOLE_TORCH=1
# As for ctest: two of its threads on two busy cores wait for each other most of the time.
export OMP_NUM_THREADS=1

failed=()
if (($# == 0)); then
  echo "== built once more"
  again=$(mktemp -d .deps/wheel-again.XXXXXX)
  GRADVANE_WHEEL_DIR=$again scripts/wheel.sh
  cmp "$again/${wheel##*/}" "$wheel" || failed+=("the same sources gave another file")
  rm -rf "$again"
fi
for pair in "${pairs[@]}"; do
  torch=${pair%@*} version=$base
  [[ $pair == *@* ]] && version=${pair#*@}
  place=$PWD/.deps/wheel-test
  rm -rf "$place"
  mkdir -p "$place/build/python"
  echo "== torch $torch, CPython $version"
  wanted=("torch==$torch" "numpy<2.3" pytest jsonschema prometheus-client "$wheel")
  interpreter=$GRADVANE_VENV_PYTHON
  if [[ $version != "$base" ]]; then interpreter=.deps/pythons/python$version; fi
  "$interpreter" -m venv --without-pip "$place/venv"
  python=$place/venv/bin/python
  "$GRADVANE_VENV_PYTHON" -m pip --python "$python" install --quiet --disable-pip-version-check --no-cache-dir "${wanted[@]}"
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # The tests take the package from a build folder: this one holds what pip installed.
  for part in gradvane gradvane.libs; do ln -s "$site/$part" "$place/build/python/$part"; done
  export GRADVANE_BUILD_DIR=$place/build
  "$python" -B -m pytest -q -p no:cacheprovider "${core[@]}" || failed+=("$pair: core")
  for group in "${harm_groups[@]}"; do
    HARM_GROUP=$group "$python" -B -m pytest -q -p no:cacheprovider tests/harm/harm_test.py ||
      failed+=("$pair: harm, $group")
  done
  rm -rf "$place"
done
if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "the wheel works beside: ${pairs[*]}"
