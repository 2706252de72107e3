{{/* What a made certificate is good for: sorted names and addresses, as a YAML list. */}}
{{- define "listproxy.certHosts" -}}
{{- $name := include "listproxy.fullname" . -}}
{{- $host := include "listproxy.host" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) $host (printf "%s.cluster.local" $host) "localhost" "127.0.0.1" "::1" -}}
{{- $hosts = concat $hosts .Values.tls.extraHosts -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = concat $hosts .Values.ingress.hosts -}}
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

{{- define "listproxy.tlsSecret" -}}
{{- if eq .Values.tls.mode "existing" -}}
{{- required "tls.mode existing: name the Secret in tls.existingSecret" .Values.tls.existingSecret -}}
{{- else -}}
{{- printf "%s-tls" (include "listproxy.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the CA of tunnels. */}}
{{- define "listproxy.connectCASecret" -}}
{{- if .Values.connect.existingCASecret -}}
{{- .Values.connect.existingCASecret -}}
{{- else if eq .Values.tls.mode "generate" -}}
{{- printf "%s-ca" (include "listproxy.fullname" .) -}}
{{- else -}}
{{- fail (printf "connect.enabled with tls.mode %s: replicas need one CA for tunnels, name a Secret with ca.crt and ca.key in connect.existingCASecret" .Values.tls.mode) -}}
{{- end -}}
{{- end -}}
