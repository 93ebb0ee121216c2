#!/usr/bin/env bash
# Puts the dashboards into a Grafana of yours and asks every query through it, for the versions that we did not run.
#
#   dashboards/verify-grafana.sh URL [TOKEN]
#
# TOKEN is one of a service account that may write dashboards, or user:password; GRAFANA_TOKEN in the environment keeps
# it out of the list of processes. Without one the Grafana must let everybody in. Of several Prometheus data sources
# GRAFANA_DATASOURCE (its UID) says which, of several runs RUN says which; the first is taken otherwise. Dashboards
# of the same UID are overwritten, unless they were provisioned: those are only asked.
#
# Prints a line for each dashboard, and one for each query that failed or had no data. The status is 0 if no query
# failed and every dashboard was taken; no data is no failure, since a run without a GPU has no host syncs.
set -euo pipefail

fail() {
  echo "verify-grafana: $*" >&2
  exit 1
}

[[ $# -eq 1 || $# -eq 2 ]] || fail "usage: dashboards/verify-grafana.sh URL [TOKEN]"
for tool in curl jq; do command -v "$tool" >/dev/null || fail "there is no $tool"; done
url=${1%/}
token=${2:-${GRAFANA_TOKEN:-}}
boards=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/grafana
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

credentials() {
  case $token in
    "") ;;
    *:*) printf 'Authorization: Basic %s' "$(printf '%s' "$token" | base64 -w 0)" ;;
    *) printf 'Authorization: Bearer %s' "$token" ;;
  esac
}

# The status; the body is in $answer. What is sent is read from the standard input.
call() {  # call <method> <path>
  local body=()
  if [[ $1 == POST ]]; then body=(--data-binary @-); fi
  curl --silent --show-error --max-time 60 --output "$answer" --write-out '%{http_code}' --request "$1" \
    --header @<(credentials) --header 'Content-Type: application/json' "${body[@]}" "$url$2"
}

said() { jq -r '.message? // .error? // empty' "$answer" 2>/dev/null || head -c 200 "$answer"; }

status=$(call GET /api/health </dev/null) || fail "$url does not answer"
[[ $status == 200 ]] || fail "$url/api/health: status $status"
version=$(jq -r '.version // "a version that it does not tell"' "$answer" 2>/dev/null) || fail "$url is no Grafana"
echo "Grafana $version"

status=$(call GET /api/datasources </dev/null)
[[ $status == 200 ]] || fail "data sources: status $status $(said) (a token of an administrator may be needed)"
source=${GRAFANA_DATASOURCE:-$(jq -r '[.[] | select(.type == "prometheus")] | .[0].uid // empty' "$answer")}
[[ -n $source ]] || fail "there is no Prometheus data source"

run=${RUN:-}
if [[ -z $run ]]; then
  status=$(call GET "/api/datasources/uid/$source/resources/api/v1/label/run/values" </dev/null)
  [[ $status == 200 ]] || fail "runs: status $status $(said)"
  run=$(jq -r '.data[0] // empty' "$answer")
  [[ -n $run ]] || fail "the data source $source knows no run: start one, or name one with RUN"
fi
echo "data source $source, run $run"

failures=0
for file in "$boards"/*.json; do
  uid=$(jq -r .uid "$file")
  status=$(jq '{dashboard: ., overwrite: true, message: "verify-grafana.sh"}' "$file" | call POST /api/dashboards/db)
  taken="uploaded"
  if [[ $status != 200 ]]; then
    taken="not uploaded: status $status $(said)"
    if grep -qi provisioned "$answer"; then taken="provisioned"; else failures=$((failures + 1)); fi
  fi
  status=$(call GET "/api/dashboards/uid/$uid" </dev/null)
  if [[ $status == 200 ]]; then
    taken+=", $(jq '[.dashboard.panels[] | (.panels // [])[], select(.type != "row")] | length' "$answer") panels"
  else
    taken+=", cannot be opened: status $status $(said)"
    failures=$((failures + 1))
  fi
  echo "$uid: $taken"

  # Grafana puts $__rate_interval and its like in by itself; the dashboard's variables are its front end's, so they
  # are put in here: all of everything.
  asked=$(jq -c --arg source "$source" --arg run "$run" '
    def filled: gsub("=~\"\\$run\""; "=\"$run\"") | gsub("\\$run\\b"; ($run | gsub("\\\\"; "\\\\") | gsub("\""; "\\\"")))
      | gsub("\\$(job|instance|rank|group)\\b"; ".+") | gsub("\\$(cluster|namespace)\\b"; ".*") | gsub("\\$topk\\b"; "10");
    [.panels[] | (.panels // [])[], select(.type != "row")]
    | [.[] | .title as $title | .targets[] | {where: "\($title) [\(.refId)]", target: .}]
    | to_entries | map({where: .value.where, refId: "q\(.key)", expr: (.value.target.expr | filled),
        instant: (.value.target.instant // false), range: (.value.target.range // false),
        format: (.value.target.format // "time_series"), intervalMs: 15000, maxDataPoints: 500,
        datasource: {type: "prometheus", uid: $source}})' "$file")
  status=$(jq -c '{from: "now-30m", to: "now", queries: map(del(.where))}' <<<"$asked" | call POST /api/ds/query) ||
    status=000
  if ! jq -e .results "$answer" >/dev/null 2>&1; then
    echo "  FAILED   all of its queries: status $status $(said)"
    failures=$((failures + 1))
    continue
  fi
  lines=$(jq -r --argjson asked "$asked" '.results as $results | $asked[] | $results[.refId] as $result
    | if $result == null then "  FAILED   \(.where): no answer"
      elif $result.error then "  FAILED   \(.where): \($result.error)"
      elif [$result.frames[]? | select((.data.values[0]? // []) | length > 0)] == [] then "  no data  \(.where)"
      else empty end' "$answer")
  if [[ -n $lines ]]; then printf '%s\n' "$lines"; fi
  failures=$((failures + $(grep -c '^  FAILED' <<<"$lines" || true)))
done

((failures == 0)) || fail "$failures failures"
echo "all dashboards were taken, no query failed"
