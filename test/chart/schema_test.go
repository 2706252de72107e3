package chart

import (
	"strings"
	"testing"
)

// TestRefused: values that cannot be meant stop the installation, and the message says where they
// are.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values string
		says   []string
	}{
		"a name that is not there":         {"replica: 3", []string{"replica"}},
		"one further down":                 {"service: {ports: 443}", []string{"/service", "ports"}},
		"no replicas":                      {"replicas: 0", []string{"/replicas", "1"}},
		"replicas in words":                {"replicas: two", []string{"/replicas", "integer"}},
		"a port that is none":              {"ports: {https: 70000}", []string{"/ports/https"}},
		"another kind of Service":          {"service: {type: ExternalName}", []string{"/service/type", "LoadBalancer"}},
		"another tls mode":                 {"tls: {mode: none}", []string{"/tls/mode", "cert-manager"}},
		"a digest that is a tag":           {"image: {digest: latest}", []string{"/image/digest"}},
		"a flag without dashes":            {"extraArgs: [review-ttl=5s]", []string{"/extraArgs/0"}},
		"an environment without a name":    {"extraEnv: [{value: x}]", []string{"/extraEnv/0", "name"}},
		"a memory limit with a wrong unit": {"resources: {limits: {memory: 4GB}}", []string{"/resources/limits/memory"}},
		"alerts without a switch":          {"prometheusRule: true", []string{"/prometheusRule", "object"}},
		"another log format":               {"log: {format: xml}", []string{"/log/format", "json"}},
		"a field that rules do not have":   {"policy: {resources: [{group: '', resource: pods, represntations: [json]}]}", []string{"/policy/resources/0", "represntations"}},
		"a rule without a group":           {"policy: {resources: [{resource: pods}]}", []string{"/policy/resources/0", "group"}},
		"an extra rule for nothing":        {"policy: {extraResources: [{group: apps}]}", []string{"/policy/extraResources/0", "resource"}},
		"a label of the chart's":           {"extraLabels: {app.kubernetes.io/name: other}", []string{"/extraLabels"}},
		"a dnsConfig that is none":         {"dnsConfig: {nameserver: 10.0.0.1}", []string{"/dnsConfig", "nameserver"}},
		"an eager default":                 {"policy: {defaults: {cache: eager}}", []string{"/policy/defaults/cache", "never"}},
		"an eager rule":                    {"policy: {resources: [{group: '', resource: pods, cache: eager}]}", []string{"/policy/resources/0/cache", "onDemand"}},
		"a version":                        {"policy: {resources: [{group: '', resource: pods, version: v1}]}", []string{"/policy/resources/0", "version"}},
		"eager nothing":                    {"eager: ['*']", []string{"/eager/0"}},
		"eager unkept":                     {"eager: [pods, widgets.v1.example.com]", []string{"the policy does not keep widgets.v1.example.com", "policy.extraResources"}},
		"eager in words":                   {"eager: pods", []string{"/eager", "array"}},

		"a window without a unit": {"policy: {resources: [{group: '', resource: pods, historyWindow: '60'}]}", []string{"/historyWindow"}},
		"a wildcard among users":  {"impersonation: {users: ['*']}", []string{"/impersonation/users/0"}},
		"a wildcard among uids":   {"impersonation: {uids: ['*']}", []string{"/impersonation/uids/0"}},
		"secrets of all groups":   {"policy: {resources: [{group: '*', resource: secrets, cache: onDemand}]}", []string{"/policy/resources/0/group"}},
		"everything":              {"{rbac: {allowGroupWildcards: true}, policy: {resources: [{group: '*', resource: '*'}]}}", []string{"/policy/resources/0/group"}},
		"a group that is none":    {"policy: {resources: [{group: 'Apps', resource: pods}]}", []string{"/policy/resources/0/group"}},
		"a subresource":           {"policy: {resources: [{group: '', resource: pods/log}]}", []string{"/policy/resources/0/resource"}},

		"lists that may be consistent": {"consistentLists: maybe", []string{"/consistentLists", "always"}},
		"consistent in words":          {"policy: {resources: [{group: '', resource: pods, consistentLists: 'yes'}]}", []string{"/policy/resources/0/consistentLists", "always"}},

		"a label that pods are selected by": {"podLabels: {app.kubernetes.io/name: other}", []string{"/podLabels/app.kubernetes.io"}},
		"a volume in place of the chart's":  {"extraVolumes: [{name: policy}]", []string{"/extraVolumes/0/name"}},
		"a mount over the chart's":          {"extraVolumeMounts: [{name: x, mountPath: /etc/listproxy/tls}]", []string{"/extraVolumeMounts/0/mountPath"}},
		"more to keep than fits":            {"{resources: {limits: {memory: 4Gi}}, cache: {bytes: 8Gi}}", []string{"cache.bytes", "is 9216 MiB", "may use 3686 MiB"}},

		"memory without a bound":        {"cache: {bytes: 0}", []string{"cache.bytes 0", "1Mi or more"}},
		"bytes without a unit":          {"cache: {inflightBytes: 512}", []string{"cache.inflightBytes 512", "1Mi or more"}},
		"one port twice":                {"ports: {https: 8081}", []string{"ports has one port twice"}},
		"one port of the Service twice": {"{connect: {enabled: true}, service: {port: 8444}}", []string{"service.port and service.connectPort"}},

		"all of a group kept":        {"policy: {resources: [{group: apps, resource: '*', cache: onDemand}]}", []string{"policy.resources[0]", "rbac.allowGroupWildcards=true"}},
		"all of the core group kept": {"{rbac: {allowGroupWildcards: true}, policy: {resources: [{group: '', resource: '*', cache: onDemand}]}}", []string{"policy.resources[0]", "Secrets"}},
		"certificates of nobody":     {"clientCertificates: {enabled: true, caConfigMap: {name: ca}}", []string{"impersonation.users", "allowAnyUser=true"}},
		"certificates without a CA":  {"{clientCertificates: {enabled: true}, impersonation: {users: [jane]}}", []string{"clientCertificates.caConfigMap.name"}},
		"existing without a Secret":  {"tls: {mode: existing}", []string{"tls.existingSecret"}},
		"cert-manager no issuer":     {"tls: {mode: cert-manager}", []string{"tls.certManager.issuerRef.name"}},
		"a CA for tunnels":           {"connect: {enabled: true, existingCASecret: s}", []string{"existingCASecret"}},
		"too little memory":          {"resources: {limits: {memory: 512Mi}}", []string{"resources.limits.memory 512Mi", "1Gi"}},
		"an ingress to nowhere":      {"ingress: {enabled: true}", []string{"ingress.hosts"}},
		"a service account by certificate": {
			"{clientCertificates: {enabled: true, caConfigMap: {name: ca}}, impersonation: {users: ['system:serviceaccount:ci:deploy']}}",
			[]string{"impersonation.users", "serviceaccounts"},
		},
		"clients without their CAs":         {"clients: {namespaces: [team-a]}", []string{"kube-root-ca.crt", "clients.caBundle"}},
		"clients of another's certificate":  {"{clients: {namespaces: [team-a]}, tls: {mode: existing, existingSecret: s}}", []string{"no ca.crt in the Secret s", "clients.caBundle"}},
		"a bypass to nowhere":               {"bypass: true", []string{"no EndpointSlice of the Service kubernetes", "--dry-run=server"}},
		"clients that seldom stay":          {"goawayChance: 0.5", []string{"/goawayChance", "0.02"}},
		"pods nowhere":                      {"clients: {inject: true}", []string{"clients.inject", "clients.namespaces"}},
		"pods by an API that is not there":  {"clients: {inject: true, namespaces: [team-a], caBundle: '-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE-----'}", []string{"clients.inject: this cluster has no MutatingAdmissionPolicy", "1.36"}},
		"clients in all namespaces":         {"clients: {namespaces: ['*']}", []string{"/clients/namespaces/0"}},
		"a key among the CAs of clients":    {"clients: {caBundle: '-----BEGIN EC PRIVATE KEY-----'}", []string{"/clients/caBundle"}},
		"another distribution of traffic":   {"service: {trafficDistribution: PreferFar}", []string{"/service/trafficDistribution", "PreferSameZone"}},
		"an address that is a name":         {"service: {clusterIP: listproxy}", []string{"/service/clusterIP"}},
		"another policy for families":       {"service: {ipFamilyPolicy: Dual}", []string{"/service/ipFamilyPolicy", "PreferDualStack"}},
		"a tunnel to any name":              {"connect: {enabled: true, hosts: ['*.example.com']}", []string{"/connect/hosts/0"}},
		"a tunnel to an address in a range": {"connect: {enabled: true, hosts: ['10.0.0.0/8']}", []string{"/connect/hosts/0"}},
		"metrics for nobody":                {"serviceMonitor: {enabled: true}", []string{"serviceMonitor.enabled", "networkPolicy.adminFrom", "networkPolicy.enabled=false"}},
		"killed before the end":             {"drainSeconds: 25", []string{"terminationGracePeriodSeconds 80", "100"}},
		"fewer than the fewest":             {"autoscaling: {enabled: true, minReplicas: 6}", []string{"autoscaling.maxReplicas 5", "6"}},
		"percent of nothing":                {"{autoscaling: {enabled: true}, resources: {requests: {cpu: ''}}}", []string{"autoscaling.enabled", "resources.requests.cpu"}},
		"egress to nowhere":                 {"networkPolicy: {egress: {enabled: true}}", []string{"networkPolicy.egress.rules"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := template(t, "-f", values(t, tt.values))
			if err == nil {
				t.Fatalf("rendered:\n%s", out)
			}
			for _, word := range tt.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
		})
	}
}

// TestRefusedWithoutSchema: what would give rights to all is refused where Helm is told to skip the
// schema, too.
func TestRefusedWithoutSchema(t *testing.T) {
	certificates := "clientCertificates: {enabled: true, caConfigMap: {name: ca}}, "
	for name, tt := range map[string]struct{ values, says string }{
		"secrets of all groups":  {"policy: {resources: [{group: '*', resource: secrets, cache: onDemand}]}", `policy.resources[0]: group "*"`},
		"everything":             {"{rbac: {allowGroupWildcards: true}, policy: {resources: [{group: '*', resource: '*'}]}}", `policy.resources[0]: group "*"`},
		"subresources":           {"policy: {resources: [{group: '', resource: '*/log'}]}", `policy.resources[0]: resource "*/log"`},
		"a wildcard among users": {"{" + certificates + "impersonation: {users: ['*']}}", "impersonation.users"},
		"a wildcard among uids":  {"{" + certificates + "impersonation: {users: [jane], uids: ['*']}}", "impersonation.uids"},
	} {
		out, err := template(t, "--skip-schema-validation", "-f", values(t, tt.values))
		if err == nil {
			t.Fatalf("%s: rendered:\n%s", name, out)
		}
		if !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %q is not in: %v", name, tt.says, err)
		}
	}
}

// TestOldCluster: a cluster whose API server is older than what listproxy is compared with is
// refused.
func TestOldCluster(t *testing.T) {
	_, err := helm(t, "template", "listproxy", chart, "--kube-version", "1.31.9")
	if err == nil || !strings.Contains(err.Error(), "1.32") {
		t.Errorf("an old cluster: %v", err)
	}
}
