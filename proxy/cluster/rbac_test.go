package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// rbacKinds are the RBAC resources, each with its kind.
var rbacKinds = map[string]string{
	"clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding", "roles": "Role", "rolebindings": "RoleBinding",
}

// testNamespace returns the namespace of the tests' objects of an RBAC resource; "" for those of the cluster.
func testNamespace(resource string) string {
	if strings.HasPrefix(resource, "cluster") {
		return ""
	}
	return "n"
}

// rbacObject returns an object of a resource. The metadata is JSON after the name; grants are rules, or a role and subjects.
func rbacObject(resource, metadata, grants string) string {
	if namespace := testNamespace(resource); namespace != "" {
		metadata = fmt.Sprintf(`,"namespace":%q`, namespace) + metadata
	}
	const object = `{"kind":%q,"apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"x"%s},%s}`
	return fmt.Sprintf(object, rbacKinds[resource], metadata, grants)
}

func rules(all ...string) string { return `"rules":[` + strings.Join(all, ",") + `]` }

func bind(role string, subjects ...string) string {
	const format = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[%s]`
	return fmt.Sprintf(format, role, strings.Join(subjects, ","))
}

// rbacChange is a change of an object that was there when the watch began.
type rbacChange struct {
	event         string // the type of the event
	before, after string // what the object grants
	labels        bool   // the object has labels and annotations afterwards
	wantRevoked   bool
}

// TestRBACRoles: WatchRBAC calls revoked once, with the namespace ("" for a cluster role), if a change of a role takes away a
// rule. It does not call revoked for the first list, or for a change that only adds rules or changes metadata.
func TestRBACRoles(t *testing.T) {
	const (
		pods       = `{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}`
		fewerPods  = `{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}`
		configMaps = `{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"]}`
	)
	for _, resource := range []string{"roles", "clusterroles"} {
		checkRevocations(t, resource, map[string]rbacChange{
			"a rule more":                   {event: "MODIFIED", before: rules(pods), after: rules(configMaps, pods)},
			"metadata":                      {event: "MODIFIED", before: rules(pods), after: rules(pods), labels: true},
			"another order":                 {event: "MODIFIED", before: rules(pods, configMaps), after: rules(configMaps, pods)},
			"a rule less":                   {event: "MODIFIED", before: rules(pods, configMaps), after: rules(configMaps), wantRevoked: true},
			"the only rule goes":            {event: "MODIFIED", before: rules(pods), after: rules(), wantRevoked: true},
			"a verb less":                   {event: "MODIFIED", before: rules(pods), after: rules(fewerPods), wantRevoked: true},
			"deleted":                       {event: "DELETED", before: rules(pods), after: rules(pods), wantRevoked: true},
			"a role without rules, deleted": {event: "DELETED", before: rules(), after: rules()},
			"a bookmark":                    {event: "BOOKMARK", before: rules(pods), after: rules()},
		})
	}
}

// TestRBACBindings: WatchRBAC calls revoked once, with the namespace ("" for a cluster role binding), if a change of a
// binding takes away a subject or replaces the role. It does not call revoked for a change that only adds subjects or changes
// metadata.
func TestRBACBindings(t *testing.T) {
	const (
		jane      = `{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"jane"}`
		joe       = `{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"joe"}`
		groupJane = `{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"jane"}`
	)
	for _, resource := range []string{"rolebindings", "clusterrolebindings"} {
		checkRevocations(t, resource, map[string]rbacChange{
			"a subject more":  {event: "MODIFIED", before: bind("a", jane), after: bind("a", joe, jane)},
			"metadata":        {event: "MODIFIED", before: bind("a", jane), after: bind("a", jane), labels: true},
			"another subject": {event: "MODIFIED", before: bind("a", jane), after: bind("a", joe), wantRevoked: true},
			"a group of the user's name": {
				event: "MODIFIED", before: bind("a", jane), after: bind("a", groupJane), wantRevoked: true,
			},
			"a subject less":               {event: "MODIFIED", before: bind("a", jane, joe), after: bind("a", joe), wantRevoked: true},
			"another role":                 {event: "MODIFIED", before: bind("a", jane), after: bind("b", jane), wantRevoked: true},
			"deleted":                      {event: "DELETED", before: bind("a", jane), after: bind("a", jane), wantRevoked: true},
			"a binding of nobody, deleted": {event: "DELETED", before: bind("a"), after: bind("a")},
		})
	}
}

// checkRevocations requires for each change of an object of the resource that WatchRBAC calls revoked, or not, as wanted.
func checkRevocations(t *testing.T, resource string, changes map[string]rbacChange) {
	t.Helper()
	for name, tt := range changes {
		proxytest.Bubble(t, resource+": "+name, func(t *testing.T) {
			f := proxytest.NewFakeAPI()
			for path, kind := range rbacKinds {
				f.Collections[rbacPath+path] = &proxytest.FakeCollection{
					Kind: kind + "List", APIVersion: "rbac.authorization.k8s.io/v1",
				}
			}
			f.SetObjects(rbacPath+resource, rbacObject(resource, "", tt.before))
			var revoked []string
			proxytest.RunInBubble(t, func(ctx context.Context) {
				revoke := func(namespace string) { revoked = append(revoked, namespace) }
				expect.NoError(t, WatchRBAC(ctx, f.Config(), revoke, proxytest.DiscardLog()))
			})
			time.Sleep(time.Minute) // the first list has been read
			metadata := ""
			if tt.labels {
				metadata = `,"labels":{"a":"b"},"annotations":{"c":"d"}`
			}
			f.Event(rbacPath+resource, tt.event, rbacObject(resource, metadata, tt.after))
			time.Sleep(time.Hour) // a second call would come
			synctest.Wait()
			var want []string
			if tt.wantRevoked {
				want = []string{testNamespace(resource)}
			}
			expect.Same(t, want, revoked)
		})
	}
}
