package chart

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	for _, c := range of[*corev1.ConfigMap](all) {
		if text, ok := c.Data["policy.yaml"]; ok {
			config, err := policy.ParseConfig("policy.yaml", []byte(text))
			expect.NoError(t, err)
			return config
		}
	}
	t.Fatal("no policy")
	return nil
}

// kept are the resources that a policy keeps by a rule, as group/resource.
func kept(c *policy.Config) []string {
	var names []string
	for _, target := range c.Targets() {
		if c.RuleFor(target.Group, target.Resource).Cache != policy.CacheNever {
			names = append(names, target.Group+"/"+target.Resource)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkRules: what must be so with any values.
func (r rendering) checkRules(t *testing.T) {
	t.Helper()
	r.checkRights(t)
	r.checkMemory(t)
}

// checkRights: what may be read is what the policy keeps, as listproxy itself understands it, and what
// it needs in any case.
func (r rendering) checkRights(t *testing.T) {
	t.Helper()
	for _, role := range of[*rbacv1.ClusterRole](r.objects) {
		if strings.HasSuffix(role.Name, ":impersonation") {
			continue
		}
		var granted []string
		for _, rule := range role.Rules {
			expect.Same(t, rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: rule.APIGroups, Resources: rule.Resources}, rule)
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted = append(granted, group+"/"+resource)
				}
			}
		}
		want := append(kept(readPolicy(t, r.objects)), fixed...)
		slices.Sort(want)
		slices.Sort(granted)
		expect.Same(t, want, granted)
	}
}

// checkMemory: bounds leave what listproxy needs beside them.
func (r rendering) checkMemory(t *testing.T) {
	t.Helper()
	container := one[*appsv1.Deployment](t, r.objects).Spec.Template.Spec.Containers[0]
	mebi := func(quantity string) int64 {
		q := resource.MustParse(strings.TrimSuffix(quantity, "B"))
		return q.Value() >> 20
	}
	all := container.Resources.Limits.Memory().Value() >> 20
	if all == 0 {
		return
	}
	i := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	forGo := mebi(container.Env[i].Value)
	flags := map[string]string{}
	for _, arg := range container.Args {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}
	// cmd/listproxy/memory.go
	kept := mebi(flags["--cache-bytes"]) * 9 / 8 // compressed lists too
	needs := kept*3/2 + 512
	if needs > forGo || forGo > all*9/10 {
		t.Errorf("%d MiB are needed, of %d for Go and %d in all", needs, forGo, all)
	}
	// The most that connections, heads that are not whole, requests in flight and watches take,
	// by TestHeldMemory, beside what is stored, if there is hardly any garbage.
	connections := min(forGo, 20_000)
	watches, err := strconv.ParseInt(flags["--max-long-running-requests"], 10, 64)
	expect.NoError(t, err)
	watches += watches / 8 // of callers who are not accepted yet
	if held := kept + connections/8 + 128 + 320 + watches*61>>10; held > forGo {
		t.Errorf("%d MiB may be held, of %d for Go", held, forGo)
	}
}
