package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// rbacKinds has the kind of each RBAC resource.
var rbacKinds = map[string]string{
	"clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding", "roles": "Role", "rolebindings": "RoleBinding",
}

// rbacKind returns the kind of an RBAC resource.
func rbacKind(resource string) inmemory.Kind {
	const groupVersion = "rbac.authorization.k8s.io/v1"
	return inmemory.Kind{Path: "/apis/" + groupVersion + "/" + resource, APIVersion: groupVersion, Kind: rbacKinds[resource]}
}

// testNamespace returns the namespace of the tests' objects of an RBAC resource, or "" if the resource is cluster-scoped.
func testNamespace(resource string) string {
	if strings.HasPrefix(resource, "cluster") {
		return ""
	}
	return "n"
}

// rbacObject returns an object of a resource. metadata is the beginning of its metadata in JSON, with a comma behind it, or "".
// grants is what rules or bind returns.
func rbacObject(resource, metadata, grants string) inmemory.Object {
	return inmemory.Object{Namespace: testNamespace(resource), Name: "x", MoreMeta: metadata, More: "," + grants}
}

// rules returns the rules of a role in JSON.
func rules(all ...string) string { return `"rules":[` + strings.Join(all, ",") + `]` }

// bind returns the role and the subjects of a binding in JSON.
func bind(role string, subjects ...string) string {
	const format = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[%s]`
	return fmt.Sprintf(format, role, strings.Join(subjects, ","))
}

// rbacChange is a change of an object that was there when the watch began.
type rbacChange struct {
	event         watch.EventType // default: writeEvent
	before, after string          // what the object grants: the result of rules or bind
	labels        bool            // the object has new labels and annotations afterwards
	wantRevoked   bool
}

// TestRBACRoles: followRBAC calls Revoked once, with the namespace ("" for a ClusterRole), if a change of a role removes a
// rule. It does not call Revoked for the first list, or for a change that only adds rules or changes metadata.
func TestRBACRoles(t *testing.T) {
	const (
		pods       = `{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}`
		fewerPods  = `{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}`
		configMaps = `{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"]}`
	)
	for _, resource := range []string{"roles", "clusterroles"} {
		checkRevocations(t, resource, map[string]rbacChange{
			"a rule is added":               {before: rules(pods), after: rules(configMaps, pods)},
			"metadata":                      {before: rules(pods), after: rules(pods), labels: true},
			"another order":                 {before: rules(pods, configMaps), after: rules(configMaps, pods)},
			"a rule is removed":             {before: rules(pods, configMaps), after: rules(configMaps), wantRevoked: true},
			"the only rule is removed":      {before: rules(pods), after: rules(), wantRevoked: true},
			"a verb is removed":             {before: rules(pods), after: rules(fewerPods), wantRevoked: true},
			"deleted":                       {event: watch.Deleted, before: rules(pods), after: rules(pods), wantRevoked: true},
			"a role without rules, deleted": {event: watch.Deleted, before: rules(), after: rules()},
			"a bookmark":                    {event: watch.Bookmark, before: rules(pods), after: rules()},
		})
	}
}

// TestRBACBindings: followRBAC calls Revoked once, with the namespace ("" for a ClusterRoleBinding), if a change of a binding
// removes a subject or replaces the role. It does not call Revoked for a change that only adds subjects or changes metadata.
func TestRBACBindings(t *testing.T) {
	const (
		jane      = `{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"jane"}`
		joe       = `{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"joe"}`
		groupJane = `{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"jane"}`
	)
	for _, resource := range []string{"rolebindings", "clusterrolebindings"} {
		checkRevocations(t, resource, map[string]rbacChange{
			"a subject is added":           {before: bind("a", jane), after: bind("a", joe, jane)},
			"metadata":                     {before: bind("a", jane), after: bind("a", jane), labels: true},
			"another subject":              {before: bind("a", jane), after: bind("a", joe), wantRevoked: true},
			"a group of the user's name":   {before: bind("a", jane), after: bind("a", groupJane), wantRevoked: true},
			"a subject is removed":         {before: bind("a", jane, joe), after: bind("a", joe), wantRevoked: true},
			"another role":                 {before: bind("a", jane), after: bind("b", jane), wantRevoked: true},
			"deleted":                      {event: watch.Deleted, before: bind("a", jane), after: bind("a", jane), wantRevoked: true},
			"a binding of nobody, deleted": {event: watch.Deleted, before: bind("a"), after: bind("a")},
		})
	}
}

// checkRevocations requires that followRBAC calls Revoked exactly once for each change of an object of the resource with
// wantRevoked, and never for the other changes.
func checkRevocations(t *testing.T, resource string, changes map[string]rbacChange) {
	t.Helper()
	for name, tt := range changes {
		proxytest.Bubble(t, resource+": "+name, func(t *testing.T) {
			upstream := newUpstream(t)
			for served := range rbacKinds {
				upstream.Serve(rbacKind(served))
			}
			upstream.Put(rbacKind(resource), rbacObject(resource, "", tt.before))
			var revoked []string
			revoke := func(namespace string) { revoked = append(revoked, namespace) }
			c, err := New(upstream.Config(), Config{Revoked: revoke, Log: proxytest.DiscardLog()})
			expect.NoError(t, err)
			proxytest.RunInBubble(t, c.followRBAC)
			time.Sleep(time.Minute) // the first list has been read
			metadata := ""
			if tt.labels {
				metadata = `"labels":{"a":"b"},"annotations":{"c":"d"},`
			}
			sendEvent(upstream, rbacKind(resource), tt.event, rbacObject(resource, metadata, tt.after))
			time.Sleep(time.Hour) // long enough for a second call, which would be wrong
			synctest.Wait()
			var want []string
			if tt.wantRevoked {
				want = []string{testNamespace(resource)}
			}
			expect.Same(t, want, revoked)
		})
	}
}
