{{/* What a made certificate is good for: sorted names and addresses, as a YAML list. */}}
{{- define "listproxy.certHosts" -}}
{{- $name := include "listproxy.fullname" . -}}
{{- $host := include "listproxy.host" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) $host (printf "%s.cluster.local" $host) "kubernetes.default.svc" "localhost" "127.0.0.1" "::1" -}}
{{- $hosts = concat $hosts .Values.tls.extraHosts -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = concat $hosts .Values.ingress.hosts -}}
{{- end -}}
{{- if .Values.connect.enabled -}}
{{- range .Values.connect.hosts -}}
{{- /* host, host:port, [address]:port, or an address without brackets */ -}}
{{- $hosts = append $hosts (. | regexReplaceAll "^([^:]+|\\[.*\\]):[0-9]+$" "${1}" | trimPrefix "[" | trimSuffix "]") -}}
{{- end -}}
{{- end -}}
{{- $hosts | uniq | sortAlpha | toYaml -}}
{{- end -}}

{{/* Those of them that are names, or with "ip" addresses: arguments are the list and which. */}}
{{- define "listproxy.hostsThatAre" -}}
{{- $which := list -}}
{{- $wantIP := eq .which "ip" -}}
{{- range .hosts -}}
{{- if eq $wantIP (regexMatch "^[0-9.]+$|:" .) -}}
{{- $which = append $which . -}}
{{- end -}}
{{- end -}}
{{- $which | toYaml -}}
{{- end -}}

{{/*
The Secret with the serving certificate. One that Helm makes and one that cert-manager makes have two names: each
deletes or refuses to touch what is the other's.
*/}}
{{- define "listproxy.tlsSecret" -}}
{{- if eq .Values.tls.mode "existing" -}}
{{- $name := required "tls.mode existing: name the Secret in tls.existingSecret" .Values.tls.existingSecret -}}
{{- include "listproxy.refuseMade" (dict "root" . "value" "tls.existingSecret" "name" $name) -}}
{{- $name -}}
{{- else if eq .Values.tls.mode "cert-manager" -}}
{{- printf "%s-cert-manager-tls" (include "listproxy.fullname" .) -}}
{{- else -}}
{{- printf "%s-tls" (include "listproxy.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/*
Fails if the Secret that a value names is one that this release has made with mode generate, and that goes with this
upgrade: pods would wait for it for ever. Arguments are the root, the value and the name.
*/}}
{{- define "listproxy.refuseMade" -}}
{{- $root := .root -}}
{{- $made := list (printf "%s-tls" (include "listproxy.fullname" $root)) (printf "%s-ca" (include "listproxy.fullname" $root)) -}}
{{- if and (has .name $made) (ne $root.Values.tls.mode "generate") -}}
{{- $secret := lookup "v1" "Secret" $root.Release.Namespace .name -}}
{{- if eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $secret) $root.Release.Name -}}
{{- fail (printf "%s: the Secret %s was made by this release with tls.mode generate, and goes when the mode changes: copy it to another name, and give that" .value .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
