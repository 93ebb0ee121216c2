#!/usr/bin/env bash
# Draws every panel of the Grafana dashboards on the run whose numbers are known, with Grafana's own components
# where they are published, in headless Chromium: docs/images/dashboards/<uid>.png. (make dashboards-preview)
#
#   scripts/dashboards_preview.sh [OUT --prometheus URL --run RUN [--minutes 30] [--scrape 15]]
#
# With arguments it is a run of yours, into the folder OUT.
#
# Its npm tree takes 0.6 GB and stays under .deps/preview. Chromium is Debian's: apt-get install chromium
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. .deps/env.sh
PATH=$(dirname "$GRADVANE_VENV_PYTHON"):$PATH  # Node and npm that make deps brought

for tool in node npm chromium; do
  command -v "$tool" >/dev/null || { echo "dashboards_preview: there is no $tool" >&2; exit 1; }
done

tree=.deps/preview pages=.deps/preview/pages images=docs/images/dashboards what=(--known "$GRADVANE_SERVERS")
if (($#)); then
  images=$1
  shift
  what=("$@")
fi
mkdir -p "$pages" "$images"
wanted=$(sha256sum scripts/preview/package.json scripts/preview/package-lock.json)
if [[ ! -d $tree/node_modules || ! -f $tree/installed || $(<"$tree/installed") != "$wanted" ]]; then
  echo "fetching Grafana's components (0.6 GB the first time)"
  cp scripts/preview/{package.json,package-lock.json,.npmrc} "$tree/"
  (cd "$tree" && npm ci --no-audit --no-fund --loglevel=error)
  printf '%s\n' "$wanted" >"$tree/installed"
fi

(cd "$tree" && node "$OLDPWD/scripts/preview/build.mjs" "$OLDPWD/$pages")

shoot() {  # shoot <page> <image> <width> <height>
  chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
    --window-size="$3,$4" --virtual-time-budget=15000 --timeout=60000 --screenshot="$2" \
    --enable-logging=stderr "file://$PWD/$pages/$1.html" </dev/null >"$pages/$1.log" 2>&1 ||
    { cat "$pages/$1.log" >&2; exit 1; }
  if grep -E 'CONSOLE.*(Uncaught|Error)|The preview failed' "$pages/$1.log" >&2; then exit 1; fi
  # A third of the size, where it is installed; 256 colours are enough for these.
  if command -v pngquant >/dev/null; then pngquant --force --speed 1 --strip --output "$2" 256 "$2"; fi
  echo "$2  $3 x $4"
}

"$GRADVANE_VENV_PYTHON" -B scripts/board_check/preview.py --out "$pages" "${what[@]}" |
  while read -r uid width height top; do
    shoot "$uid" "$images/$uid.png" "$width" "$height"
    # The first rows of the overview alone: what is seen of a run at first.
    if [[ $uid == gradvane-overview && ${what[0]} != --known ]]; then
      shoot "$uid" "$images/overview-top.png" "$width" "$top"
    fi
  done
