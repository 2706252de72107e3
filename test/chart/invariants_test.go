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

// alwaysNeeded are the resources that listproxy lists and watches whatever its policy says.
var alwaysNeeded = []string{
	"apiextensions.k8s.io/customresourcedefinitions",
	"apiregistration.k8s.io/apiservices",
	"internal.apiserver.k8s.io/storageversions",
	"rbac.authorization.k8s.io/clusterrolebindings",
	"rbac.authorization.k8s.io/clusterroles",
	"rbac.authorization.k8s.io/rolebindings",
	"rbac.authorization.k8s.io/roles",
}

// readPolicy returns the policy in the rendered ConfigMap, parsed as listproxy parses it.
func readPolicy(t *testing.T, all []runtime.Object) *policy.File {
	t.Helper()
	for _, c := range ofType[*corev1.ConfigMap](all) {
		if text, ok := c.Data["policy.yaml"]; ok {
			file, err := policy.ParseFile("policy.yaml", []byte(text))
			expect.NoError(t, err)
			return file
		}
	}
	t.Fatal("no policy")
	return nil
}

// cachedResources returns the resources that a policy keeps by a rule, as group/resource.
func cachedResources(f *policy.File) []string {
	c := f.Config(policy.Switches{})
	var names []string
	for _, rule := range f.Resources {
		if c.RuleFor(*rule.Group, rule.Resource).Cache != policy.CacheNever {
			names = append(names, *rule.Group+"/"+rule.Resource)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkInvariants checks what must be true with any values.
func (r rendering) checkInvariants(t *testing.T) {
	t.Helper()
	r.checkRights(t)
	r.checkMemory(t)
}

// checkRights checks that listproxy's account may list and watch the resources that the policy keeps and alwaysNeeded, and
// no others.
func (r rendering) checkRights(t *testing.T) {
	t.Helper()
	for _, role := range ofType[*rbacv1.ClusterRole](r.objects) {
		if strings.HasSuffix(role.Name, ":impersonation") {
			continue
		}
		var granted []string
		for _, rule := range role.Rules {
			readOnly := rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: rule.APIGroups, Resources: rule.Resources}
			expect.Same(t, readOnly, rule)
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted = append(granted, group+"/"+resource)
				}
			}
		}
		want := append(cachedResources(readPolicy(t, r.objects)), alwaysNeeded...)
		slices.Sort(want)
		slices.Sort(granted)
		expect.Same(t, want, granted)
	}
}

// checkMemory checks that a pod with a memory limit has room for what its flags allow listproxy to take. All figures are in MiB
// unless their name says otherwise.
func (r rendering) checkMemory(t *testing.T) {
	t.Helper()
	container := one[*appsv1.Deployment](t, r.objects).Spec.Template.Spec.Containers[0]
	limit := container.Resources.Limits.Memory().Value() >> 20
	if limit == 0 {
		return
	}
	mebi := func(quantity string) int64 {
		q := resource.MustParse(strings.TrimSuffix(quantity, "B"))
		return q.Value() >> 20
	}
	i := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	goLimit := mebi(container.Env[i].Value)
	flags := map[string]string{}
	for _, arg := range container.Args {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}

	// Stored objects, garbage and the rest must fit. memoryLimit in cmd/listproxy/memory.go adds up the same.
	objects := mebi(flags["--cache-bytes"])
	stored := objects + objects/8 // compressed lists take up to an eighth of the bound on objects
	withGarbage := stored * 3 / 2 // with GOGC=50 garbage grows to half of what is stored
	const otherMemory = 512       // requests, connections, stacks
	if needed := withGarbage + otherMemory; needed > goLimit {
		t.Errorf("%d MiB are needed, GOMEMLIMIT is %d", needed, goLimit)
	}
	if goLimit > limit*9/10 { // the rest is for memory that the Go runtime does not count
		t.Errorf("GOMEMLIMIT is %d MiB, want at most 90 %% of the pod's limit %d", goLimit, limit)
	}

	// What is stored and the most that clients can make listproxy hold must fit, too. TestHeldMemory in test/faults measures
	// how much that is.
	const incompleteHeaders, requestsInFlight = 128, 320 // for all clients together
	const kibPerConnection, kibPerWatch = 128, 61
	connections := min(goLimit, 20_000) // as connectionBound in cmd/listproxy/memory.go
	watches, err := strconv.ParseInt(flags["--max-long-running-requests"], 10, 64)
	expect.NoError(t, err)
	watches += watches / 8 // so many more are allowed to callers whose token kube-apiserver has not accepted yet
	byConnections, byWatches := connections*kibPerConnection>>10, watches*kibPerWatch>>10
	if held := stored + byConnections + incompleteHeaders + requestsInFlight + byWatches; held > goLimit {
		t.Errorf("%d MiB may be held, GOMEMLIMIT is %d", held, goLimit)
	}
}
