#!/usr/bin/env bash
# Checks of files that need no test run: format, scripts, size, words, then names and likely bugs by
# clang-tidy (lint/check_sources.py, which remembers what it found good).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
tools=$PWD/.deps/venv/bin

failures=0
check() {  # check <name> <command>...
  local name=$1 start=$SECONDS output
  shift
  if output=$("$@" 2>&1); then
    printf '[lint] %-12s ok    %3ds%s\n' "$name" $((SECONDS - start)) "${output:+  $output}"
  else
    printf '[lint] %-12s FAIL  %3ds\n%s\n' "$name" $((SECONDS - start)) "$output"
    failures=$((failures + 1))
  fi
}

# Files of the project: what git tracks or would track, and that are still there.
files() {
  local file
  git ls-files --cached --others --exclude-standard -- "$@" |
    while read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done
}

format() {
  local list output
  mapfile -t list < <(files '*.hpp' '*.cpp' '*.cu' '*.cuh')
  output=$("$tools/clang-format" --dry-run -Werror "${list[@]}" 2>&1) && return 0
  # A place in each file will do: nobody mends these by hand.
  echo "make format mends:"
  grep -E '^[^ ]+:[0-9]+:[0-9]+: error' <<<"$output" | sort -t: -k1,1 -u | cut -d: -f1-2 | sed 's/^/  /'
  return 1
}

shell_scripts() {
  local list
  command -v shellcheck >/dev/null || { echo "skipped: no shellcheck on this system"; return 0; }
  mapfile -t list < <(files '*.sh' '.ci/run' 'versions.env')
  # SC1091: .deps/env.sh is written by setup.sh. SC2034: versions.env is read by others.
  shellcheck --external-sources --shell=bash --exclude=SC1091,SC2034 "${list[@]}"
}

# Names that are used and not there, and what is imported for nothing. The fixtures of pytest look redefined.
python_names() {
  local list
  mapfile -t list < <(files '*.py')
  "$tools/ruff" check --quiet --no-cache --select F --ignore F811 --output-format concise "${list[@]}"
}

# One idea a file; past 400 lines it is two.
file_length() {
  local long
  long=$(files '*.hpp' '*.cpp' '*.cu' '*.cuh' '*.py' '*.sh' '*.ts' '*.tsx' '*.mjs' '*.css' '*.cmake' '*CMakeLists.txt' Makefile |
    xargs -r -d '\n' wc -l | awk '$2 != "total" && $1 > 400 { print "  " $2 ": " $1 " lines" }')
  [[ -z $long ]] || { printf 'longer than 400 lines:\n%s\n' "$long"; return 1; }
}

# Paths of somebody's machine, registry addresses, unfinished work. The brackets keep these patterns
# from finding themselves.
words() {
  local found=0 pattern
  local -A refused=(
    ['(^|[^[:alnum:]_.])/(wor[k]|roo[t]|hom[e]/[a-z]+)/']="a path of one machine"
    ['index-ur[l]|--registr[y][= ]|GOPROX[Y]=http|pypi\.or[g]|files\.pythonhoste[d]']="a package registry's address"
    ['\b(TOD[O]|FIXM[E]|XX[X])\b']="unfinished work"
    ['^([<]{7} |[>]{7} |[=]{7}$)']="a merge that was not finished"
  )
  for pattern in "${!refused[@]}"; do
    if files '*' ':!*.lock' ':!package-lock.json' | xargs -r -d '\n' grep -nIE "$pattern" /dev/null; then
      echo "  ^ ${refused[$pattern]}"
      found=1
    fi
  done
  return $found
}

white_space() {
  local list
  mapfile -t list < <(files '*' ':!*.md' ':!LICENSE' ':!tests/python/expected/*')
  if grep -nIE '[[:blank:]]+$' "${list[@]}"; then
    echo "  ^ blanks at the end of a line"
    return 1
  fi
}

sources() {
  "$tools/python" -B scripts/lint/check_sources.py --tidy "$tools/clang-tidy" --build build/release
}

check format format
check shell shell_scripts
check python python_names
check length file_length
check words words
check blanks white_space
check sources sources
((failures == 0)) || { echo "[lint] $failures of 7 checks failed"; exit 1; }
