{{/*
The ConfigMaps for pods in clients.namespaces: a kubeconfig, and the CAs in a file beside it, which clients read again
when it changes (client-go 0.36 and newer). Arguments are the root and listproxy's CA.
*/}}
{{- define "listproxy.clients" -}}
{{- $root := .root -}}
{{- $own := .ca -}}
{{- with $root.Values.clients -}}
{{- $bundle := .caBundle -}}
{{- if and .namespaces (not $bundle) -}}
  {{- $cluster := dig "data" "ca.crt" "" (lookup "v1" "ConfigMap" "default" "kube-root-ca.crt") -}}
  {{- if not $own -}}
    {{- fail (printf "clients: Helm finds no ca.crt in the Secret %s: install without clients.namespaces first, and upgrade when it is there; or give the CAs of listproxy and of the API servers in clients.caBundle" (include "listproxy.tlsSecret" $root)) -}}
  {{- else if not $cluster -}}
    {{- fail "clients: Helm finds no ConfigMap kube-root-ca.crt in the namespace default (helm template looks into no cluster): give the CAs of listproxy and of the API servers in clients.caBundle" -}}
  {{- end -}}
  {{- $bundle = printf "%s\n%s" (trim $own) (trim $cluster) -}}
{{- end -}}
{{- range $namespace := .namespaces }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "listproxy.fullname" $root }}-client
  namespace: {{ $namespace }}
  labels:
    {{- include "listproxy.labels" $root | nindent 4 }}
data:
  kubeconfig: |
    apiVersion: v1
    kind: Config
    current-context: listproxy
    contexts:
    - name: listproxy
      context: {cluster: listproxy, user: pod, namespace: {{ $namespace | quote }}}
    clusters:
    - name: listproxy
      cluster:
        server: https://{{ include "listproxy.host" $root }}:{{ $root.Values.service.port }}
        certificate-authority: ca.crt
        {{- with $root.Values.clients.tlsServerName }}
        tls-server-name: {{ . }}
        {{- end }}
    users:
    - name: pod
      user:
        tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
  ca.crt: |
    {{- trim $bundle | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}
