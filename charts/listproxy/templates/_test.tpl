{{/*
What helm test lists in its namespace, as YAML: the first of these that the policy keeps; pods if none, which are
forwarded then. Only what is in namespaces, so that a Role is enough to read it.
*/}}
{{- define "listproxy.testList" -}}
{{- $kept := include "listproxy.kept" . | fromYaml -}}
{{- $chosen := dict "group" "" "version" "v1" "resource" "pods" "kept" false -}}
{{- $found := false -}}
{{- range list "/v1/pods" "/v1/services" "discovery.k8s.io/v1/endpointslices" "apps/v1/deployments" "apps/v1/replicasets" "apps/v1/statefulsets" "apps/v1/daemonsets" "batch/v1/jobs" "batch/v1/cronjobs" "/v1/endpoints" "/v1/serviceaccounts" "/v1/configmaps" -}}
  {{- $part := splitList "/" . -}}
  {{- if and (not $found) (has (index $part 2) (get $kept (index $part 0) | default list)) -}}
    {{- $chosen = dict "group" (index $part 0) "version" (index $part 1) "resource" (index $part 2) "kept" true -}}
    {{- $found = true -}}
  {{- end -}}
{{- end -}}
{{- toYaml $chosen -}}
{{- end -}}

{{/* What all objects of helm test have; the argument is the root and the weight. They go again, but a pod that failed. */}}
{{- define "listproxy.testMetadata" -}}
name: {{ include "listproxy.testName" .root }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "listproxy.labels" .root | nindent 2 }}
  app.kubernetes.io/component: test
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- define "listproxy.testName" -}}
{{- printf "%s-test" (include "listproxy.fullname" .) -}}
{{- end -}}

{{/* The list that the notes tell to ask for: a small one, and one that the policy keeps; empty if there is none. */}}
{{- define "listproxy.notesPath" -}}
{{- $kept := include "listproxy.kept" . | fromYaml -}}
{{- $core := get $kept "" | default list -}}
{{- $list := include "listproxy.testList" . | fromYaml -}}
{{- if has "namespaces" $core -}}
/api/v1/namespaces?resourceVersion=0
{{- else if has "nodes" $core -}}
/api/v1/nodes?resourceVersion=0
{{- else if $list.kept -}}
{{ ternary (printf "/apis/%s" $list.group) "/api" (ne $list.group "") }}/{{ $list.version }}/namespaces/{{ .Release.Namespace }}/{{ $list.resource }}?resourceVersion=0
{{- end -}}
{{- end -}}
