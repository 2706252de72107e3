package chart

import (
	"strings"
	"testing"
)

// TestValues: what the manifests must have, and must not have, for values.
func TestValues(t *testing.T) {
	t.Parallel()
	const certificates = "clientCertificates: {enabled: true, caConfigMap: {name: ca}}, "
	for name, tt := range map[string]struct {
		values      string
		has, hasNot []string
	}{
		"everybody is authenticated": {
			values: "{" + certificates + "impersonation: {users: [jane]}}",
			has:    []string{"resourceNames:\n    - system:authenticated\n- "}, hasNot: []string{"[uids]"},
		},
		"groups that are named": {
			values: "{" + certificates + "impersonation: {users: [jane], groups: [developers, 'system:authenticated']}}",
			has:    []string{"    - system:authenticated\n    - developers\n- "},
		},
		"uids that are named": {
			values: "{" + certificates + "impersonation: {users: [jane], uids: [uid-jane]}}",
			has:    []string{"  resources: [uids]\n  verbs: [impersonate]\n  resourceNames:\n    - uid-jane\n- apiGroups"},
		},
		"any uid": {
			values: "{" + certificates + "impersonation: {users: [jane], allowAnyUid: true}}",
			has:    []string{"  resources: [uids]\n  verbs: [impersonate]\n- apiGroups"},
		},
		"what some platforms refuse": {
			values: "{podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}, securityContext: {capabilities: null}}",
			has:    []string{"runAsNonRoot: true", "readOnlyRootFilesystem: true"}, hasNot: []string{"runAsUser", "runAsGroup", "fsGroup", "capabilities"},
		},
		"names that are found in another way": {
			values: "{dnsPolicy: Default, dnsConfig: {options: [{name: ndots, value: '1'}]}}",
			has:    []string{"dnsPolicy: Default\n", "name: ndots"},
		},
		"what is given to Prometheus": {
			values: "{serviceMonitor: {enabled: true, relabelings: [{targetLabel: cluster}], metricRelabelings: [{action: labeldrop, regex: pod}]}, networkPolicy: {enabled: false}}",
			has:    []string{"      relabelings:\n        - targetLabel: cluster\n", "      metricRelabelings:\n        - action: labeldrop\n          regex: pod\n"},
		},
		"the end of a pod": {
			values: "{drainSeconds: 7, shutdownSeconds: 40, terminationGracePeriodSeconds: 62}",
			has:    []string{"--shutdown-delay-duration=7s", "--shutdown-timeout=40s", "terminationGracePeriodSeconds: 62"}, hasNot: []string{"preStop"},
		},
		"Go's limit is given once": { // kube-apiserver refuses two of one name
			values: "extraEnv: [{name: GOMEMLIMIT, value: 3GiB}]",
			has:    []string{"- name: GOMEMLIMIT\n              value: 3GiB\n"}, hasNot: []string{"GOMEMLIMIT\n              value: \"3686MiB\""},
		},
		"bytes without a unit": { // Helm reads them as floats
			values: "{resources: {limits: {memory: 4294967296}}, cache: {bytes: 1500000000}}",
			has:    []string{"--cache-bytes=1500000000\n"},
		},
		"names of an issuer's certificate": {
			values: "tls: {mode: cert-manager, certManager: {issuerRef: {name: internal}, hosts: [lists.example.com]}}",
			has:    []string{"dnsNames:\n    - lists.example.com\n"}, hasNot: []string{"commonName", "localhost", "ipAddresses"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered := mustTemplate(t, tt.values)
			for _, words := range tt.has {
				if !strings.Contains(rendered, words) {
					t.Errorf("there is no %q in\n%s", words, rendered)
				}
			}
			for _, words := range tt.hasNot {
				if strings.Contains(rendered, words) {
					t.Errorf("there is %q", words)
				}
			}
		})
	}
}
