package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/expect"
)

// fixed are the rights that listproxy needs whatever it keeps.
var fixed = []string{
	"apiextensions.k8s.io/customresourcedefinitions",
	"apiregistration.k8s.io/apiservices",
	"internal.apiserver.k8s.io/storageversions",
	"rbac.authorization.k8s.io/clusterrolebindings",
	"rbac.authorization.k8s.io/clusterroles",
	"rbac.authorization.k8s.io/rolebindings",
	"rbac.authorization.k8s.io/roles",
}

// readPolicy reads the policy as listproxy does.
func readPolicy(t *testing.T, all []runtime.Object) *policy.Config {
	t.Helper()
	c := one(t, all, func(c *corev1.ConfigMap) bool { return strings.HasSuffix(c.Name, "-policy") })
	config, err := policy.ParseConfig("policy.yaml", []byte(c.Data["policy.yaml"]))
	expect.NoError(t, err)
	return config
}

// kept are the resources that a policy keeps by a rule, as group/resource.
func kept(c *policy.Config) []string {
	var names []string
	for _, target := range c.Targets() {
		if c.For(target.Group, target.Resource).Cache != policy.CacheNever {
			names = append(names, target.Group+"/"+target.Resource)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// granted are the resources in a role, each of which is to be listed and watched, and nothing else.
func granted(t *testing.T, rules []rbacv1.PolicyRule) []string {
	t.Helper()
	var names []string
	for _, rule := range rules {
		if diff := cmp.Diff([]string{"list", "watch"}, rule.Verbs); diff != "" || rule.NonResourceURLs != nil || rule.ResourceNames != nil {
			t.Errorf("not just list and watch: %v", rule)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				names = append(names, group+"/"+resource)
			}
		}
	}
	slices.Sort(names)
	return names
}

// TestRightsAreThePolicys: what may be read is what the policy keeps, as listproxy itself
// understands it, and what it needs in any case.
func TestRightsAreThePolicys(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values string
		want   []string // nil: whatever the policy keeps
	}{
		"default": {values: "{}"},
		"nothing": {values: "policy: {resources: []}", want: []string{}},
		"what the rule says": {
			values: "policy: {resources: [{group: '', resource: pods, cache: onDemand}, {group: apps, resource: deployments, cache: onDemand}, {group: '', resource: nodes, cache: never}]}",
			want:   []string{"/pods", "apps/deployments"},
		},
		"what defaults say": {
			values: "policy: {defaults: {cache: onDemand}, resources: [{group: '', resource: pods, historyWindow: 60s}]}",
			want:   []string{"/pods"},
		},
		"what the rule for all of the group says": {
			values: "policy: {defaults: {cache: onDemand}, resources: [{group: apps, resource: '*', cache: never}, {group: apps, resource: deployments, historyWindow: 1h}, {group: apps, resource: daemonsets, cache: onDemand}]}",
			want:   []string{"apps/daemonsets"},
		},
		"Secrets not named with a cache": {
			values: "policy: {defaults: {cache: onDemand}, resources: [{group: '', resource: secrets, historyWindow: 60s}]}",
			want:   []string{},
		},
		"Secrets named": {
			values: "policy: {resources: [{group: '', resource: secrets, cache: onDemand}]}",
			want:   []string{"/secrets"},
		},
		"all of a group allowed": {
			values: "{rbac: {allowGroupWildcards: true}, policy: {resources: [{group: example.com, resource: '*', cache: onDemand}]}}",
			want:   []string{"example.com/*"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := template(t, "-f", values(t, tt.values), "--set-json", "eager=[]")
			expect.NoError(t, err)
			all := objects(t, rendered)
			config := readPolicy(t, all)
			role := one[*rbacv1.ClusterRole](t, all, nil)
			want := append(kept(config), fixed...)
			if tt.want != nil {
				want = append(slices.Clone(tt.want), fixed...)
				if diff := cmp.Diff(tt.want, append([]string{}, kept(config)...)); diff != "" {
					t.Errorf("listproxy keeps (-want +got):\n%s", diff)
				}
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, granted(t, role.Rules)); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaultsReadNoSecrets: nobody who installs the chart as it is gives away Secrets, or a
// wildcard.
func TestDefaultsReadNoSecrets(t *testing.T) {
	for _, name := range granted(t, one[*rbacv1.ClusterRole](t, objects(t, mustTemplate(t, "{}")), nil).Rules) {
		if strings.Contains(name, "*") || name == "/secrets" {
			t.Errorf("%s", name)
		}
	}
}
