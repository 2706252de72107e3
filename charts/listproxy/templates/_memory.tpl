{{/* A quantity as it was written: Helm reads plain numbers as floats, and would print 2e+09. */}}
{{- define "listproxy.quantity" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* A quantity of bytes, in whole MiB. */}}
{{- define "listproxy.mebibytes" -}}
{{- $units := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- /* A plain number of values.yaml is a float. */ -}}
{{- $text := include "listproxy.quantity" . -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- divf (mulf (float64 $number) (get $units (trimPrefix $number $text))) 1048576.0 | floor | int64 -}}
{{- end -}}

{{/*
Bounds that follow from the memory limit, in MiB, as YAML. listproxy takes what is stored and
compressed, half as much again for garbage, and 512 MiB for requests (docs/operate.md); that
is to fit into GOMEMLIMIT, which leaves a tenth for what Go does not count. A connection takes 128 KiB at most, and
listproxy takes one for each MiB of GOMEMLIMIT, so they take an eighth of it: garbage is collected more often then. A
watch takes 61 KiB, so one for each MiB of the limit takes a seventeenth of it.
*/}}
{{- define "listproxy.memory" -}}
{{- $limit := include "listproxy.mebibytes" .Values.resources.limits.memory | int64 -}}
{{- if lt $limit 1000 -}}
{{- fail (printf "resources.limits.memory %s: 512Mi of it are for requests, and little is left to store: give 1Gi at least" (toString .Values.resources.limits.memory)) -}}
{{- end -}}
{{- $go := div (mul $limit 9) 10 -}}
{{- $kept := div (mul (sub $go 512) 2) 3 -}}
go: {{ $go }}
stored: {{ sub $kept (div $kept 9) }}
inflight: {{ div $limit 8 }}
oneEach: {{ min $limit 20000 }}
{{- end -}}
