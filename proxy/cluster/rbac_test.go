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
	const object = `{"kind":%q,"apiVersion":"rbac.authorization.k8s.io/v1","metadata":{%s"name":"x"%s`
	return fmt.Sprintf(object, rbacKinds[resource], namespace, body)
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
	return meta + `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + role +
		`"},"subjects":[` + strings.Join(all, ",") + `]}`
}

// TestRBACRevocations: a change that takes a rule or a subject away is told, once, with the namespace that it concerns.
// One that adds some, or changes only metadata, is not, nor is what was there at first.
func TestRBACRevocations(t *testing.T) {
	type row struct {
		event         string // its type
		before, after string // the object's body
		wantRevokes   bool
	}
	rowsOf := map[string]map[string]row{
		"roles": {
			"a rule more": {event: "MODIFIED", before: rules(unlabelled, pods), after: rules(unlabelled, configMaps, pods)},
			"metadata":    {event: "MODIFIED", before: rules(unlabelled, pods), after: rules(labelled, pods)},
			"another order": {
				event: "MODIFIED", before: rules(unlabelled, pods, configMaps), after: rules(unlabelled, configMaps, pods),
			},
			"a rule less": {
				event:       "MODIFIED",
				before:      rules(unlabelled, pods, configMaps),
				after:       rules(unlabelled, configMaps),
				wantRevokes: true,
			},
			"no rule": {event: "MODIFIED", before: rules(unlabelled, pods), after: rules(unlabelled), wantRevokes: true},
			"a verb less": {
				event: "MODIFIED", before: rules(unlabelled, pods), after: rules(unlabelled, fewerPods), wantRevokes: true,
			},
			"deleted": {
				event: "DELETED", before: rules(unlabelled, pods), after: rules(unlabelled, pods), wantRevokes: true,
			},
			"deleted, without": {event: "DELETED", before: rules(unlabelled), after: rules(unlabelled)},
			"a bookmark":       {event: "BOOKMARK", before: rules(unlabelled, pods), after: rules(unlabelled)},
		},
		"bindings": {
			"a subject more": {
				event: "MODIFIED", before: bound(unlabelled, "a", jane), after: bound(unlabelled, "a", joe, jane),
			},
			"metadata": {event: "MODIFIED", before: bound(unlabelled, "a", jane), after: bound(labelled, "a", jane)},
			"another subject": {
				event: "MODIFIED", before: bound(unlabelled, "a", jane), after: bound(unlabelled, "a", joe), wantRevokes: true,
			},
			"a group of a user": {
				event: "MODIFIED", before: bound(unlabelled, "a", jane), after: bound(unlabelled, "a", janes), wantRevokes: true,
			},
			"a subject less": {
				event:       "MODIFIED",
				before:      bound(unlabelled, "a", jane, joe),
				after:       bound(unlabelled, "a", joe),
				wantRevokes: true,
			},
			"another role": {
				event: "MODIFIED", before: bound(unlabelled, "a", jane), after: bound(unlabelled, "b", jane), wantRevokes: true,
			},
			"deleted": {
				event: "DELETED", before: bound(unlabelled, "a", jane), after: bound(unlabelled, "a", jane), wantRevokes: true,
			},
			"deleted, of nobody": {event: "DELETED", before: bound(unlabelled, "a"), after: bound(unlabelled, "a")},
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
					f.Collections[rbacPath+resource] = &proxytest.FakeCollection{
						Kind: kind + "List", APIVersion: "rbac.authorization.k8s.io/v1",
					}
				}
				f.SetObjects(rbacPath+resource, rbacObject(resource, tt.before))
				var told []string
				proxytest.RunInBubble(t, func(ctx context.Context) {
					revoked := func(namespace string) { told = append(told, "in "+namespace) }
					expect.NoError(t, WatchRBAC(ctx, f.Config(), revoked, proxytest.DiscardLog()))
				})
				time.Sleep(time.Minute)
				f.Event(rbacPath+resource, tt.event, rbacObject(resource, tt.after))
				time.Sleep(time.Hour)
				synctest.Wait()
				var want []string
				switch namespaced := !strings.HasPrefix(kind, "Cluster"); {
				case tt.wantRevokes && namespaced:
					want = []string{"in n"}
				case tt.wantRevokes:
					want = []string{"in "}
				}
				expect.Same(t, want, told)
			})
		}
	}
}
