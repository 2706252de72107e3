{{/* What is mounted, name: source; each at /etc/listproxy/NAME. */}}
{{- define "listproxy.volumes" -}}
- name: policy
  configMap:
    name: {{ include "listproxy.fullname" . }}-policy
- name: tls
  secret:
    secretName: {{ include "listproxy.tlsSecret" . }}
    defaultMode: 0400
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
{{- if .Values.clientCertificates.enabled }}
- name: client-ca
  configMap:
    {{- with .Values.clientCertificates.caConfigMap }}
    name: {{ required "clientCertificates.caConfigMap.name: name the ConfigMap with the CA of client certificates" .name }}
    items:
      - {key: {{ .key }}, path: ca.crt}
    {{- end }}
{{- end }}
{{- end -}}
