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

// rbacObject is an object in the namespace n, if it has one, that grants something: body has its rules, or its
// subjects and the role.
func rbacObject(resource, body string) string {
	namespace := ""
	if !strings.HasPrefix(resource, "cluster") {
		namespace = `"namespace":"n",`
	}
	return fmt.Sprintf(`{"kind":%q,"apiVersion":"rbac.authorization.k8s.io/v1","metadata":{%s"name":"x"%s`, rbacKinds[resource], namespace, body)
}

const (
	unlabelled = `},`
	labelled   = `,"labels":{"a":"b"},"annotations":{"c":"d"}},`

	pods       = `{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}`
	fewerPods  = `{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}`
	configMaps = `{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"]}`

	jane  = `{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"jane"}`
	joe   = `{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"joe"}`
	janes = `{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"jane"}`
)

func rules(meta string, all ...string) string {
	return meta + `"rules":[` + strings.Join(all, ",") + `]}`
}

func bound(meta, role string, all ...string) string {
	return meta + `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + role + `"},"subjects":[` + strings.Join(all, ",") + `]}`
}

// TestRBACRevocations: what takes a rule or a subject away is told, once, with the namespace that it concerns.
// What adds some, or changes only metadata, is not, nor what was there at first.
func TestRBACRevocations(t *testing.T) {
	type row struct {
		kind, was, is string
		revokes       bool
	}
	rowsOf := map[string]map[string]row{
		"roles": {
			"a rule more":      {"MODIFIED", rules(unlabelled, pods), rules(unlabelled, configMaps, pods), false},
			"metadata":         {"MODIFIED", rules(unlabelled, pods), rules(labelled, pods), false},
			"another order":    {"MODIFIED", rules(unlabelled, pods, configMaps), rules(unlabelled, configMaps, pods), false},
			"a rule less":      {"MODIFIED", rules(unlabelled, pods, configMaps), rules(unlabelled, configMaps), true},
			"no rule":          {"MODIFIED", rules(unlabelled, pods), rules(unlabelled), true},
			"a verb less":      {"MODIFIED", rules(unlabelled, pods), rules(unlabelled, fewerPods), true},
			"deleted":          {"DELETED", rules(unlabelled, pods), rules(unlabelled, pods), true},
			"deleted, without": {"DELETED", rules(unlabelled), rules(unlabelled), false},
			"a bookmark":       {"BOOKMARK", rules(unlabelled, pods), rules(unlabelled), false},
		},
		"bindings": {
			"a subject more":     {"MODIFIED", bound(unlabelled, "a", jane), bound(unlabelled, "a", joe, jane), false},
			"metadata":           {"MODIFIED", bound(unlabelled, "a", jane), bound(labelled, "a", jane), false},
			"another subject":    {"MODIFIED", bound(unlabelled, "a", jane), bound(unlabelled, "a", joe), true},
			"a group of a user":  {"MODIFIED", bound(unlabelled, "a", jane), bound(unlabelled, "a", janes), true},
			"a subject less":     {"MODIFIED", bound(unlabelled, "a", jane, joe), bound(unlabelled, "a", joe), true},
			"another role":       {"MODIFIED", bound(unlabelled, "a", jane), bound(unlabelled, "b", jane), true},
			"deleted":            {"DELETED", bound(unlabelled, "a", jane), bound(unlabelled, "a", jane), true},
			"deleted, of nobody": {"DELETED", bound(unlabelled, "a"), bound(unlabelled, "a"), false},
		},
	}
	for resource, kind := range rbacKinds {
		rows := rowsOf["roles"]
		if strings.HasSuffix(resource, "bindings") {
			rows = rowsOf["bindings"]
		}
		for name, tt := range rows {
			proxytest.Bubble(t, resource+": "+name, func(t *testing.T) {
				f := proxytest.NewFakeAPI()
				for resource, kind := range rbacKinds {
					f.Collections[rbacPath+resource] = &proxytest.FakeCollection{Kind: kind + "List", APIVersion: "rbac.authorization.k8s.io/v1"}
				}
				f.Hold(rbacPath+resource, rbacObject(resource, tt.was))
				var told []string
				proxytest.RunInBubble(t, func(ctx context.Context) {
					expect.NoError(t, WatchRBAC(ctx, f.Config(), func(namespace string) { told = append(told, "in "+namespace) }, proxytest.DiscardLog()))
				})
				time.Sleep(time.Minute)
				f.Event(rbacPath+resource, tt.kind, rbacObject(resource, tt.is))
				time.Sleep(time.Hour)
				synctest.Wait()
				var want []string
				switch namespaced := !strings.HasPrefix(kind, "Cluster"); {
				case tt.revokes && namespaced:
					want = []string{"in n"}
				case tt.revokes:
					want = []string{"in "}
				}
				expect.Same(t, want, told)
			})
		}
	}
}
