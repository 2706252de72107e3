{{/* listproxy's flags, as a YAML list. */}}
{{- define "listproxy.args" -}}
- --config=/etc/listproxy/policy/policy.yaml
{{- with include "listproxy.eager" . }}
- --eager={{ . }}
{{- end }}
- {{ printf "--bind-address=%s" .Values.bindAddress | quote }}
- --secure-port={{ .Values.ports.https }}
- {{ printf (ternary "--admin-bind-address=[%s]:%v" "--admin-bind-address=%s:%v" (contains ":" .Values.bindAddress)) .Values.bindAddress .Values.ports.admin | quote }}
- --tls-cert-file=/etc/listproxy/tls/tls.crt
- --tls-private-key-file=/etc/listproxy/tls/tls.key
{{- if .Values.consistentLists }}
- --consistent-lists={{ .Values.consistentLists }}
{{- end }}
{{- if .Values.watches }}
- --watches
{{- end }}
{{- with .Values.goawayChance }}
- --goaway-chance={{ . }}
{{- end }}
- --shutdown-delay-duration={{ .Values.drainSeconds }}s
{{- if .Values.connect.enabled }}
- --connect-port={{ .Values.ports.connect }}
{{- range .Values.connect.hosts }}
- {{ printf "--connect-hosts=%s" . | quote }}
{{- end }}
{{- end }}
{{- if .Values.clientCertificates.enabled }}
- --client-ca-file=/etc/listproxy/client-ca/ca.crt
{{- end }}
{{- $memory := dict }}
{{- if .Values.resources.limits.memory }}
{{- $memory = include "listproxy.memory" . | fromYaml }}
{{- end }}
{{- range $flag, $bound := dict "cache-bytes" (list .Values.cache.bytes "stored") "max-inflight-bytes" (list .Values.cache.inflightBytes "inflight") }}
{{- if ne (toString (first $bound)) "" }}
- --{{ $flag }}={{ include "listproxy.quantity" (first $bound) }}
{{- else if $memory }}
- --{{ $flag }}={{ get $memory (last $bound) }}Mi
{{- end }}
{{- end }}
{{- $longRunning := .Values.maxLongRunningRequests }}
{{- if and (not (kindIs "invalid" $longRunning)) (ne (toString $longRunning) "") }}
- --max-long-running-requests={{ int64 $longRunning }}
{{- else if $memory }}
- --max-long-running-requests={{ get $memory "oneEach" }}
{{- end }}
{{- if $memory }}
{{- range $name, $bound := dict "bytes" .Values.cache.bytes "inflightBytes" .Values.cache.inflightBytes }}
{{- if and (ne (toString $bound) "") (eq (include "listproxy.mebibytes" $bound | int64) 0) }}
{{- fail (printf "cache.%s %v: with resources.limits.memory it must be 1Mi or more, since 0 is no bound; leave it empty for what fits the limit" $name $bound) }}
{{- end }}
{{- end }}
{{- if ne (toString .Values.cache.bytes) "" }}
{{- $kept := div (mul (include "listproxy.mebibytes" .Values.cache.bytes | int64) 9) 8 }}
{{- $needed := add (div (mul $kept 3) 2) 512 }}
{{- if gt $needed (add (get $memory "go" | int64) 2) }}
{{- fail (printf "cache.bytes, with an eighth of it for compressed lists, is %d MiB, for which listproxy needs %d MiB (half as much again, and 512 MiB for requests); of resources.limits.memory it may use %d MiB: give less, or raise the limit" $kept $needed (get $memory "go" | int64)) }}
{{- end }}
{{- end }}
{{- end }}
- --shutdown-timeout={{ .Values.shutdownSeconds }}s
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
