{{/* The policy file. */}}
{{- define "listproxy.policy" -}}
apiVersion: listproxy.io/v1alpha1
kind: Policy
{{- with .Values.policy.defaults }}
defaults:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "listproxy.rules" . | fromYamlArray }}
resources:
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The rules, as a YAML list: policy.resources without those that an extra one replaces, and then policy.extraResources.
*/}}
{{- define "listproxy.rules" -}}
{{- $replaced := dict -}}
{{- range .Values.policy.extraResources -}}
  {{- $_ := set $replaced (printf "%s/%s" .group .resource) true -}}
{{- end -}}
{{- $rules := list -}}
{{- range .Values.policy.resources -}}
  {{- if not (hasKey $replaced (printf "%s/%s" .group .resource)) -}}
    {{- $rules = append $rules . -}}
  {{- end -}}
{{- end -}}
{{- concat $rules .Values.policy.extraResources | toYaml -}}
{{- end -}}

{{/*
What the policy keeps, as YAML: groups with their resources. A rule's cache comes from the rule, from that
for "*" of the group, from defaults, as docs/policy.md has it; Secrets need a rule of their own, Events are never
kept.
*/}}
{{- define "listproxy.kept" -}}
{{- $rules := include "listproxy.rules" . | fromYamlArray -}}
{{- $caches := dict -}}
{{- range $rules -}}
  {{- if .cache -}}
    {{- $_ := set $caches (printf "%s/%s" .group .resource) .cache -}}
  {{- end -}}
{{- end -}}
{{- $kept := dict -}}
{{- range $i, $rule := $rules -}}
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
  {{- $cache := .cache | default $all -}}
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

{{/* --eager, whose resources the policy must keep. */}}
{{- define "listproxy.eager" -}}
{{- $kept := include "listproxy.kept" . | fromYaml -}}
{{- range .Values.eager -}}
  {{- $part := splitn "." 3 (regexReplaceAll "/.*$" . "") -}}
  {{- $resources := get $kept ($part._2 | default "") | default list -}}
  {{- if and (eq ($.Values.policy.defaults.cache | default "") "never") (not (or (has $part._0 $resources) (has "*" $resources))) -}}
    {{- fail (printf "eager: the policy does not keep %s: leave it out of eager, or add a rule to policy.extraResources" .) -}}
  {{- end -}}
{{- end -}}
{{- join "," .Values.eager -}}
{{- end -}}
