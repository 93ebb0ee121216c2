{{- define "gradvane.labels" -}}
app.kubernetes.io/name: gradvane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* What objects of this release are called. */}}
{{- define "gradvane.name" -}}
{{- if contains "gradvane" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-gradvane" (.Release.Name | trunc 31 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* "yes" if the object is wanted: (list $ "PodMonitor" .Values.podMonitor.enabled "monitoring.coreos.com/v1") */}}
{{- define "gradvane.wanted" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $wanted := toString (index . 2) -}}
{{- $api := index . 3 -}}
{{- if eq $wanted "true" -}}
yes
{{- else if and (eq $wanted "auto") ($root.Capabilities.APIVersions.Has (printf "%s/%s" $api $kind)) -}}
yes
{{- end -}}
{{- end -}}

{{- define "gradvane.tokenSecret" -}}
{{- if .Values.token.secret -}}
{{- .Values.token.secret -}}
{{- else if .Values.token.create -}}
{{- include "gradvane.name" . -}}-token
{{- end -}}
{{- end -}}

{{/* What both monitors ask of an endpoint. */}}
{{- define "gradvane.endpoint" -}}
interval: {{ .Values.podMonitor.interval }}
{{- with .Values.podMonitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- $token := include "gradvane.tokenSecret" . }}
{{- with .Values.webConfig }}
{{- if .secret }}
{{- if and $token .basicAuth }}
{{- fail "webConfig.basicAuth and token are both set: a scrape can send one of them" }}
{{- end }}
scheme: {{ .scheme }}
{{- with .tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- else if or .tlsConfig .basicAuth }}
{{- fail "webConfig.secret is empty: name the Secret with the web config, or leave tlsConfig and basicAuth out" }}
{{- end }}
{{- end }}
{{- with $token }}
authorization:
  credentials:
    name: {{ . }}
    key: {{ $.Values.token.key }}
{{- end }}
{{- with .Values.podMonitor.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gradvane.namespaces" -}}
{{- if .Values.pods.namespaces }}
namespaceSelector:
  {{- if has "*" .Values.pods.namespaces }}
  any: true
  {{- else }}
  matchNames:
    {{- toYaml .Values.pods.namespaces | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The pod security profile "restricted". */}}
{{- define "gradvane.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}
{{- define "gradvane.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
