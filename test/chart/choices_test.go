package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy"
)

// TestExtraResources: one more rule, or another one in place of the chart's, without the list that
// the chart has; and the account may read what they keep.
func TestExtraResources(t *testing.T) {
	all := objects(t, mustTemplate(t, `policy: {extraResources: [
		{group: example.com, resource: widgets, cache: onDemand},
		{group: "", resource: configmaps, cache: never},
		{group: apps, resource: deployments, historyWindow: 1m}]}`))
	config := readPolicy(t, all)
	for _, want := range []struct {
		group, resource string
		cache           policy.CacheMode
	}{
		{"", "pods", policy.CacheOnDemand},
		{"example.com", "widgets", policy.CacheOnDemand},
		{"", "configmaps", policy.CacheNever},
		{"apps", "deployments", policy.CacheNever},
	} {
		if got := config.For(want.group, want.resource).Cache; got != want.cache {
			t.Errorf("%s is kept %s, want %s", want.resource, got, want.cache)
		}
	}
	for _, object := range all {
		role, ok := object.(*rbacv1.ClusterRole)
		if !ok {
			continue
		}
		may := strings.Join(granted(t, role.Rules), " ")
		if !strings.Contains(may, "example.com/widgets") || strings.Contains(may, "configmaps") || strings.Contains(may, "deployments") {
			t.Errorf("may read %s", may)
		}
	}
}

// TestGroups: every user has system:authenticated, whichever groups are named.
func TestGroups(t *testing.T) {
	for values, want := range map[string][]string{
		"users: [jane]":                       {"system:authenticated"},
		"users: [jane], groups: [developers]": {"system:authenticated", "developers"},
		"users: [jane], groups: [developers, 'system:authenticated']": {"system:authenticated", "developers"},
	} {
		rendered := mustTemplate(t, "{clientCertificates: {enabled: true, caConfigMap: {name: ca}}, impersonation: {"+values+"}}")
		role := one(t, objects(t, rendered), func(r *rbacv1.ClusterRole) bool { return strings.HasSuffix(r.Name, ":impersonation") })
		if diff := cmp.Diff(want, role.Rules[1].ResourceNames); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
}

// TestPlatforms: what some platforms refuse can be left out, for both kinds of pods, and what they
// want can be added.
func TestPlatforms(t *testing.T) {
	all := objects(t, mustTemplate(t, `
podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
securityContext: {capabilities: null}
extraLabels: {team: platform}
podLabels: {team: platform, part: proxy}
dnsPolicy: Default
dnsConfig: {options: [{name: ndots, value: "1"}]}
`))
	deployment := one[*appsv1.Deployment](t, all, nil)
	for who, spec := range map[string]corev1.PodSpec{"listproxy": deployment.Spec.Template.Spec, "helm test": one[*corev1.Pod](t, all, nil).Spec} {
		if c := spec.SecurityContext; c.RunAsUser != nil || c.RunAsGroup != nil || c.FSGroup != nil || !*c.RunAsNonRoot || c.SeccompProfile == nil {
			t.Errorf("%s: %+v", who, c)
		}
		if c := spec.Containers[0].SecurityContext; c.Capabilities != nil || !*c.ReadOnlyRootFilesystem {
			t.Errorf("%s: %+v", who, c)
		}
	}
	spec := deployment.Spec.Template.Spec
	if spec.DNSPolicy != corev1.DNSDefault || spec.DNSConfig.Options[0].Name != "ndots" {
		t.Errorf("names are found by %s, %+v", spec.DNSPolicy, spec.DNSConfig)
	}
	if deployment.Spec.Template.Labels["team"] != "platform" || deployment.Spec.Template.Labels["part"] != "proxy" || deployment.Spec.Selector.MatchLabels["team"] != "" {
		t.Errorf("labels of pods %v, selected by %v", deployment.Spec.Template.Labels, deployment.Spec.Selector.MatchLabels)
	}
	for _, object := range all {
		meta, ok := object.(metav1.Object)
		if !ok || meta.GetLabels()["team"] != "platform" {
			t.Errorf("%T %s has no extra label", object, meta.GetName())
		}
	}
}

// TestRelabelings: they are given to Prometheus as they are.
func TestRelabelings(t *testing.T) {
	rendered := mustTemplate(t, `
serviceMonitor: {enabled: true, relabelings: [{targetLabel: cluster, replacement: prod}], metricRelabelings: [{action: labeldrop, regex: pod}]}
networkPolicy: {enabled: false}`)
	for _, want := range []string{
		"      relabelings:\n        - replacement: prod\n          targetLabel: cluster\n",
		"      metricRelabelings:\n        - action: labeldrop\n          regex: pod\n",
	} {
		if !strings.Contains(rendered, want) {
			t.Errorf("there is no\n%s", want)
		}
	}
}

// TestNotes: they tell to ask for a list that comes from memory under the policy, and of what
// should make one think.
func TestNotes(t *testing.T) {
	const secrets, image = "WARNING: the policy keeps all Secrets", "NOTE: image.repository is the chart's default"
	const pods = "clients: {namespaces: [team-a], caBundle: '-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE-----'}"
	for name, tt := range map[string]struct {
		values         string
		want, wantLess []string
	}{
		"default":       {"{}", []string{"try --kubeconfig proxy.kubeconfig '/api/v1/namespaces?resourceVersion=0'", image, "name their namespaces in clients.namespaces"}, []string{secrets}},
		"pods":          {pods, []string{"Pods in team-a mount the ConfigMap listproxy-client"}, []string{"name their namespaces"}},
		"our own image": {"image: {repository: registry.example.com/listproxy}", nil, []string{image}},
		"only nodes":    {"{eager: [nodes], policy: {resources: [{group: '', resource: nodes, cache: onDemand}]}}", []string{"'/api/v1/nodes?resourceVersion=0'"}, nil},
		"only jobs":     {"{eager: [], policy: {resources: [{group: batch, resource: jobs, cache: onDemand}]}}", []string{"'/apis/batch/v1/namespaces/proxies/jobs?resourceVersion=0'"}, nil},
		"only widgets":  {"{eager: [], policy: {resources: [{group: example.com, resource: widgets, cache: onDemand}]}}", []string{"that the policy keeps (widgets)"}, []string{"/namespaces?"}},
		"nothing":       {"{eager: [], policy: {resources: []}}", []string{"none: name some in policy.extraResources"}, nil},
		"secrets":       {"policy: {extraResources: [{group: '', resource: secrets, cache: onDemand}]}", nil, []string{secrets}},
		"eager secrets": {"{eager: [secrets/protobuf], policy: {extraResources: [{group: '', resource: secrets, cache: onDemand}]}}", []string{secrets}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			// helm template leaves the notes out.
			notes := mustHelm(t, "install", "listproxy", chart, "--namespace", "proxies", "--dry-run=client", "-f", values(t, tt.values))
			_, notes, _ = strings.Cut(notes, "\nNOTES:\n")
			for _, want := range tt.want {
				if !strings.Contains(notes, want) {
					t.Errorf("they do not say %q:\n%s", want, notes)
				}
			}
			for _, less := range tt.wantLess {
				if strings.Contains(notes, less) {
					t.Errorf("they say %q", less)
				}
			}
		})
	}
}
