{{- define "listproxy.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of what is not in the release's namespace: two releases of one name do not meet. */}}
{{- define "listproxy.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "listproxy.fullname" .) -}}
{{- end -}}

{{- define "listproxy.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "listproxy.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The Service's name in the cluster's DNS, without the cluster's own domain. */}}
{{- define "listproxy.host" -}}
{{- printf "%s.%s.svc" (include "listproxy.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* By these and nothing else the pods are selected; they never change. */}}
{{- define "listproxy.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end -}}

{{/* By these the pod of helm test is let in. */}}
{{- define "listproxy.testLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end -}}

{{/* The labels of an object that has some of its own, which replace others: (list . its own). */}}
{{- define "listproxy.labelsWith" -}}
{{- toYaml (merge (deepCopy (last .)) (include "listproxy.labels" (first .) | fromYaml)) -}}
{{- end -}}

{{- define "listproxy.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "listproxy.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}
