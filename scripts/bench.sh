#!/usr/bin/env bash
# Runs the benchmarks and prints one table; raw numbers go to bench/results/<host kind>/.
# Quick look: GRADVANE_BENCH_ROUNDS=3 make bench
set -euo pipefail
cd "$(dirname "$0")/.."
. .deps/env.sh
exec "$GRADVANE_VENV_PYTHON" -B scripts/bench/bench.py "$@"
