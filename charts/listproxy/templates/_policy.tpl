{{/* The policy file. */}}
{{- define "listproxy.policy" -}}
apiVersion: listproxy.io/v1alpha1
kind: Policy
{{- with .Values.policy.defaults }}
defaults:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.policy.resources }}
resources:
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
What the policy keeps, as YAML: groups with their resources. A rule's cache comes from the rule, from that
for the same resource in all versions, from that for "*" of the group, from defaults, as docs/policy.md
has it; Secrets need one of their own rules, Events are never kept.
*/}}
{{- define "listproxy.kept" -}}
{{- $caches := dict -}}
{{- range .Values.policy.resources -}}
  {{- if and .cache (not .version) -}}
    {{- $_ := set $caches (printf "%s/%s" .group .resource) .cache -}}
  {{- end -}}
{{- end -}}
{{- $kept := dict -}}
{{- range $i, $rule := .Values.policy.resources -}}
  {{- /* RBAC would read more into these. The schema has the same rule, and can be skipped. */ -}}
  {{- if contains "*" .group -}}
    {{- fail (printf "policy.resources[%d]: group %q is not an API group. RBAC would read it as all groups. Write one group, or \"\" for the core group." $i .group) -}}
  {{- end -}}
  {{- if and (ne .resource "*") (regexMatch "[*/]" .resource) -}}
    {{- fail (printf "policy.resources[%d]: resource %q is no resource: write its plural name, or \"*\" for all of the group" $i .resource) -}}
  {{- end -}}
  {{- $all := get $caches (printf "%s/*" .group) | default $.Values.policy.defaults.cache | default "onDemand" -}}
  {{- if and (eq .group "") (eq .resource "secrets") -}}
    {{- $all = "never" -}}
  {{- end -}}
  {{- $cache := .cache | default (get $caches (printf "%s/%s" .group .resource)) | default $all -}}
  {{- if and (eq .resource "events") (has .group (list "" "events.k8s.io")) -}}
    {{- $cache = "never" -}}
  {{- end -}}
  {{- if ne $cache "never" -}}
    {{- if eq .resource "*" -}}
      {{- if not .group -}}
        {{- fail (printf "policy.resources[%d]: resource \"*\" of the core group would need the right to read Secrets: name the resources, or write cache: never" $i) -}}
      {{- end -}}
      {{- if not $.Values.rbac.allowGroupWildcards -}}
        {{- fail (printf "policy.resources[%d]: resource \"*\" would need list and watch on all of the group %s, what it gets later included: name the resources, write cache: never, or set rbac.allowGroupWildcards=true" $i .group) -}}
      {{- end -}}
    {{- end -}}
    {{- $_ := set $kept .group (append (get $kept .group | default list) .resource | uniq | sortAlpha) -}}
  {{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}
