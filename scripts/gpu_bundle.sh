#!/usr/bin/env bash
# Collects in .deps/gpu-bundle what a build needs and a GPU machine without network lacks: Debian packages
# of C++ libraries, to be unpacked beside the system by bench/gpu/run.sh. Torch, CUDA, CMake, ninja and a
# compiler are taken to be there. The sources travel by themselves.
#
# The packages are those of the system that this runs on, so their shared libraries want a C library that
# is as new as this one's, or newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=versions.env
. ./versions.env

cache=.deps/cache/debs
bundle=.deps/gpu-bundle
limit_mb=60

# Headers, static libraries, and the shared ones that CMake's package files name. curl's and civetweb's are
# there because prometheus-cpp's package file looks for them; nothing of ours links them.
packages=(
  prometheus-cpp-dev libprometheus-cpp-core1.0 libprometheus-cpp-pull1.0 libprometheus-cpp-push1.0
  civetweb libcivetweb-dev libcivetweb1 libcurl4-openssl-dev
  libyaml-cpp-dev libyaml-cpp0.7 libbenchmark-dev libbenchmark1debian
  libgtest-dev libgmock-dev libcli11-dev nlohmann-json3-dev zlib1g-dev zlib1g
)

fail() {
  printf '[gpu-bundle] error: %s\n' "$1" >&2
  exit 1
}

# The one version that this system would install, as apt names the file.
file_of() {
  apt-get download --print-uris "$1" 2>/dev/null | awk 'NR == 1 { print $2 }'
}

command -v apt-get >/dev/null || fail "this is not a Debian system"
boost=""
for package in $BOOST_PACKAGES; do
  if [[ -n $(file_of "$package") ]]; then boost=$package && break; fi
done
[[ -n $boost ]] || fail "none of $BOOST_PACKAGES is to be had; run apt-get update"
packages+=("$boost")

mkdir -p "$cache"
rm -rf "$bundle" "$bundle.part"
mkdir -p "$bundle.part"
for package in "${packages[@]}"; do
  file=$(file_of "$package")
  [[ -n $file ]] || fail "package $package is not to be had on this system; run apt-get update"
  if [[ ! -f $cache/$file ]]; then
    # Its sandbox user may not write here, which only makes it warn.
    (cd "$cache" && apt-get download -q "$package" >/dev/null 2>&1) ||
      fail "package $package could not be fetched: is the network there?"
  fi
  cp "$cache/$file" "$bundle.part/${file//%3a/_}"
done

# run.sh compares with the machine it is on, and says it where something does not fit.
cat >"$bundle.part/about.json" <<END
{
  "system": "$(. /etc/os-release && echo "$PRETTY_NAME")",
  "glibc": "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)",
  "machine": "$(uname -m)",
  "commit": "$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)",
  "packages": ${#packages[@]}
}
END
mv "$bundle.part" "$bundle"

kilobytes=$(du -sk "$bundle" | cut -f1)
((kilobytes < limit_mb * 1024)) || fail "$bundle holds $((kilobytes / 1024)) MB, more than $limit_mb"
printf '[gpu-bundle] %d packages, %d.%d MB in %s\n' "${#packages[@]}" $((kilobytes / 1024)) \
  $((kilobytes % 1024 * 10 / 1024)) "$bundle"
