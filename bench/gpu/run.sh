#!/usr/bin/env bash
# Proves and measures the CUDA pass and the sync ledger on a machine with a GPU and no network.
#
#   bench/gpu/run.sh [--quick] [--minutes N] [STAGE...]     default: test kernel sync train gpt2 sanitize
#
#   build     unpack, configure, compile; every other stage does what it needs of this first
#   test      the tests labelled gpu, none of which may skip
#   kernel    the pass against a plain read, against four kernels a tensor, and against torch
#   sync      what CUPTI, CUDA and torch's profiler do: the questions of docs/internals/sync-ledger.md
#   train     GPT-2 in C++ without an agent and with several settings of it, at three lengths of a step
#   gpt2      GPT-2 in Python without an agent and with several settings of it, at three lengths of a step
#   sanitize  compute-sanitizer's four tools over the kernel's tests
#
# A stage takes nine minutes at most and goes on after another one failed; the exit code says whether all
# passed. Each writes gpu_<stage>.json to $OUT, or to bench/results/<device>/, and prints a table; sync
# writes the lines that it printed to gpu_sync.txt besides.
#
# What must be there: a Python with torch, CUDA's compiler, CMake 3.25, ninja, a C++20 compiler. The C++
# libraries may be missing: then they come from .deps/gpu-bundle, which `make gpu-bundle` fills elsewhere.
#
# GRADVANE_GPU_PYTHON  the Python that has torch (default python3)
# CUDA_HOME            the toolkit (default: where nvcc is)
# GRADVANE_GPU_BUNDLE  always: take the bundle's libraries although the system has them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${GRADVANE_GPU_PYTHON:-python3}
command -v "$python" >/dev/null || {
  echo "[gpu] error: there is no $python; name one that has torch with GRADVANE_GPU_PYTHON" >&2
  exit 1
}
exec "$python" -B bench/gpu/stages.py "$@"
