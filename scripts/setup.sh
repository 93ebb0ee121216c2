#!/usr/bin/env bash
# Brings everything a build needs into .deps/ (and Debian packages onto the machine).
# Six stages; each is skipped when its stamp holds the hash of what it depends on, so a run with
# nothing to do takes well under two seconds and an interrupted run goes on where it was.
#
#   apt      compilers and C++ libraries, through sudo where not root
#   servers  prometheus, promtool and alertmanager, unpacked, not installed: the packages start services
#   python   a virtual environment with torch, CMake, nvcc and the test tools
#   tools    what the Python package is built, checked and tried with, into the same environment
#   page     Node, and what the page that the agent serves is bundled from
#   cuda     a folder in the layout that CMake and nvcc expect, made of links into the wheels
#
# GRADVANE_PYTHON      Python to make the environment from (default /usr/bin/python3)
# GRADVANE_TORCH_DIR   an existing torch: the folder that holds share/cmake/Torch
# CUDA_HOME            an existing CUDA toolkit
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
mkdir -p "$deps/stamps"

# shellcheck source=versions.env
. "$root/versions.env"
# shellcheck source=scripts/setup/setup_stages.sh
. "$root/scripts/setup/setup_stages.sh"

# One set-up at a time in a checkout: `make -j` and two terminals would write the same environment.
exec 9>"$deps/lock"
if ! flock -n 9; then
  say lock "another set-up is running in this checkout, waiting for it"
  flock 9
fi

# What runs beside another stage waits for the network as that does, and installs other things. It is waited for
# whatever happens: a dpkg that is killed leaves a system to be repaired.
trap wait EXIT
read_overrides
if can_begin_with_python; then
  { run_apt; run_servers; } &
  system=$!
  run_python
  wait "$system" || fail apt "failed, see above"
else
  run_apt
  run_servers
  run_python
fi
run_page &
page=$!
run_tools
wait "$page" || fail page "failed, see above"
run_cuda
write_settings
