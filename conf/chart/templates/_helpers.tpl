{{- define "gateway.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* One of several gateways without a store of their own would have a ledger of its own. */ -}}
{{- define "gateway.check" -}}
{{- $several := or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled -}}
{{- if $several -}}
{{- range $section := list "store" "database" -}}
{{- if not (regexMatch (printf "(?m)^\\[%s\\][^\\[]*^url\\s*=" $section) $.Values.config) -}}
{{- fail (printf "several gateways need a common %s: set url in [%s] of config" $section $section) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
