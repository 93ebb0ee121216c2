# One command each. Every target does its own set-up; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
MAKEFLAGS += --no-print-directory

PRESET ?= release
# A file that includes torch's headers takes up to 1.5 GB to compile, so memory counts as much as cores.
JOBS ?= $(shell awk -v cores="$$(nproc)" '/MemAvailable/ { jobs = int($$2 / 2097152); \
  print jobs < 1 ? 1 : jobs < cores ? jobs : cores }' /proc/meminfo)
# About two minutes on two cores.
DEMO ?= build/release/bin/char_gpt --size small

# The compiler cache stays in the checkout, like everything else, unless the user has one.
export CCACHE_DIR ?= $(CURDIR)/.deps/cache/ccache
export CCACHE_MAXSIZE ?= 3G
# It keeps what is compiled with a precompiled header only where these two are allowed.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
# What a source includes is known once it is compiled: no preprocessor runs before.
export CCACHE_DEPEND ?= 1

use_deps = . .deps/env.sh

# configure_and_build <preset> [<targets>]: ninja runs CMake again by itself when a build file changed. One at a time
# in a build folder, because ninja does not look whether another is at work there.
define configure_and_build
$(use_deps)
mkdir -p build
(
  flock 9
  [[ -f build/$(1)/build.ninja ]] || "$$GRADVANE_CMAKE" --preset $(1)
  "$$GRADVANE_CMAKE" --build --preset $(1) --parallel $(JOBS) $(if $(2),--target $(2))
) 9>build/$(1).lock
endef

.PHONY: deps build test test-all test-wheel test-helm wheel demo stack drill dashboards dashboards-preview bench sass gpu-bundle gpu-prebuilt lint format clean help

deps:  ## install what is needed: Debian packages, and the rest under .deps/
	@scripts/setup.sh

build: deps  ## build into build/$PRESET (release; or dev, asan, tsan, gpu)
	@$(call configure_and_build,$(PRESET))

test: deps  ## build, then run the unit and integration tests
	@$(call configure_and_build,release)
	status=0
	"$$GRADVANE_CTEST" --preset release || status=$$?
	"$$GRADVANE_VENV_PYTHON" -B scripts/skipped.py build/release/Testing/Temporary/LastTest.log || true
	[[ $$status != 0 ]] || exit 0
	echo "What failed, in short; the whole output is above and in build/release/Testing/Temporary/LastTest.log:"
	grep -hE '^(FAILED|ERROR) |^E  |^\[  FAILED  \]|: Failure$$' build/release/Testing/Temporary/LastTest.log | cut -c1-300 | tail -n 60 || true
	exit "$$status"

test-all: test  ## test, then the same under sanitizers, the soak runs, and test-wheel (hours)
	@for preset in asan tsan; do
	  $(MAKE) build PRESET=$$preset
	done
	$(use_deps)
	"$$GRADVANE_CTEST" --preset asan
	"$$GRADVANE_CTEST" --preset tsan
	"$$GRADVANE_CTEST" --test-dir build/release -L '^soak$$' --output-on-failure
	$(MAKE) test-wheel

wheel: deps  ## build dist/gradvane-*.whl: one file for CPython 3.10 to 3.14 and torch 2.9 to 2.15
	@exec scripts/wheel.sh

test-wheel: wheel  ## install that file beside four torches and two more Pythons, and test it there (some 6 GB each)
	@exec scripts/test_wheel.sh

test-helm: deps  ## test the chart in helm/ with Helm 3 and 4, and a collector, built from their modules (minutes the first time)
	@$(call configure_and_build,release,gradvane_package)
	exec scripts/test_helm.sh

demo: deps  ## train a small language model for about two minutes, with its page up
	@$(call configure_and_build,release)
	exec $(DEMO)

stack: deps  ## the demo with Prometheus and Alertmanager beside it, wired to the shipped rules
	@$(call configure_and_build,release)
	export GRADVANE_SERVERS
	exec "$$GRADVANE_VENV_PYTHON" -B scripts/demo_stack.py

drill: deps  ## break trainings in eight ways, time the alerts, and see what policies save
	@$(call configure_and_build,release)
	export GRADVANE_SERVERS
	exec "$$GRADVANE_VENV_PYTHON" -B scripts/alert_drill.py

dashboards: deps  ## write the Grafana dashboards anew, from dashboards/grafana_boards
	@$(use_deps)
	exec "$$GRADVANE_VENV_PYTHON" -B dashboards/make_dashboards.py --out dashboards/grafana

dashboards-preview: deps  ## draw every panel with Grafana's own components (0.6 GB; wants node, npm, chromium)
	@exec scripts/dashboards_preview.sh

bench: deps  ## measure, write bench/results/ and print one table
	@$(call configure_and_build,release,all bench/all)
	exec scripts/bench.sh

sass: deps  ## count the kernel's machine instructions against docs/internals/sass.json
	@$(use_deps)
	exec "$$GRADVANE_VENV_PYTHON" -B scripts/sass.py

gpu-bundle:  ## collect in .deps/gpu-bundle what bench/gpu/run.sh needs where there is no network
	@scripts/gpu_bundle.sh

gpu-prebuilt: deps  ## build here what a GPU machine runs with bench/gpu/prebuilt.py, into .deps/gpu-prebuilt
	@exec scripts/gpu_prebuilt.sh

lint: deps  ## check format, names, likely bugs, scripts, and rules about files
	@$(use_deps)
	[[ -f build/release/build.ninja ]] || "$$GRADVANE_CMAKE" --preset release >/dev/null
	ninja -C build/release build.ninja >/dev/null
	scripts/lint.sh

format: deps  ## lay out C++ and CUDA sources as make lint wants them
	@git ls-files --cached --others --exclude-standard '*.hpp' '*.cpp' '*.cu' '*.cuh' |
	  xargs -d '\n' .deps/venv/bin/clang-format -i

clean:  ## remove build/ (what make deps installed stays in .deps/)
	@rm -rf build

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
