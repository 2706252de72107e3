package chart

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

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
