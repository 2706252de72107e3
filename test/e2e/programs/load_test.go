package programs

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// turns is how often the load changes; the definition of a custom resource comes with the
	// second.
	turns = 4
	// each is how many of each kind there are in a namespace.
	each = 7
	// namePrefix begins all names.
	namePrefix = "followed-"
)

// load is what programs that follow a cluster find there: some objects of several kinds in two
// namespaces, nodes, and objects that own others. In each turn all change, one of each kind goes
// and another one comes.
type load struct{ client dynamic.Interface }

// kind is one kind of objects, and what they look like. Owner is the number among all kinds of the
// one whose object of the same name owns them.
type kind struct {
	resource schema.GroupVersionResource
	object   string
	owner    int
	cluster  bool
	// from is the first turn.
	from int
}

// The kinds. An owner comes before what it owns.
var kinds = []kind{
	{resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, owner: -1, cluster: true, object: `
apiVersion: v1
kind: Node
status: {addresses: [{type: InternalIP, address: 10.0.0.{{.Index}}}], daemonEndpoints: {kubeletEndpoint: {Port: 10250}}}`},
	{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, owner: -1, object: `
apiVersion: v1
kind: ConfigMap
data: {turn: "{{.Turn}}"}`},
	{resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, owner: -1, object: `
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: {{.Turn}}
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: example.com/main}]}}`},
	{resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, owner: 2, object: `
apiVersion: apps/v1
kind: ReplicaSet
spec:
  replicas: {{.Turn}}
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: example.com/main}]}}`},
	{resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, owner: 3, object: `
apiVersion: v1
kind: Pod
spec: {nodeName: {{.Name}}, containers: [{name: main, image: example.com/main}]}
status: {phase: Running, podIP: 10.1.{{.Turn}}.{{.Index}}, podIPs: [{ip: 10.1.{{.Turn}}.{{.Index}}}]}`},
	{resource: schema.GroupVersionResource{Group: "programs.listproxy.test", Version: "v1", Resource: "things"}, owner: -1, from: 1, object: `
apiVersion: programs.listproxy.test/v1
kind: Thing
spec: {turn: {{.Turn}}}`},
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.programs.listproxy.test}
spec:
  group: programs.listproxy.test
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {turn: {type: integer}}}}}}`

var spaces = []string{"programs-a", "programs-a-b"}

func newLoad(t *testing.T, cluster *rest.Config) load {
	t.Helper()
	cluster = rest.CopyConfig(cluster)
	cluster.QPS = -1
	client, err := dynamic.NewForConfig(cluster)
	expect.NoError(t, err)
	l := load{client}
	for _, name := range spaces {
		l.apply(t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}")
	}
	return l
}

// apply writes an object, and its status if it has one.
func (l load) apply(t *testing.T, r schema.GroupVersionResource, text string, owners ...any) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(owners) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, owners, "metadata", "ownerReferences")
	}
	client := l.client.Resource(r).Namespace(o.GetNamespace())
	options := metav1.ApplyOptions{FieldManager: "it", Force: true}
	made, err := client.Apply(t.Context(), o.GetName(), o, options)
	if err == nil && o.Object["status"] != nil {
		made, err = client.ApplyStatus(t.Context(), o.GetName(), o, options)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return made
}

// change makes a turn.
func (l load) change(t *testing.T, turn int) {
	t.Helper()
	if turn == 1 {
		l.apply(t, schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, definition)
		things := l.client.Resource(kinds[len(kinds)-1].resource)
		poll.Until(t, patience, "the custom resource is served", func() bool {
			_, err := things.List(t.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
	made := map[string]*unstructured.Unstructured{}
	key := func(kind int, space, name string) string { return fmt.Sprint(kind, " ", space, "/", name) }
	for i, k := range kinds {
		if turn < k.from {
			continue
		}
		tmpl := template.Must(template.New(k.resource.Resource).Parse(k.object))
		for _, space := range spaces {
			if k.cluster {
				space = ""
			}
			for index := turn; index < turn+each; index++ {
				name := namePrefix + strconv.Itoa(index)
				var text bytes.Buffer
				expect.NoError(t, tmpl.Execute(&text, map[string]any{"Turn": turn, "Index": index, "Name": name}))
				_, _ = fmt.Fprintf(&text, "\nmetadata: {name: %s, namespace: %q, labels: {followed: it, turn: %q}}\n", name, space, strconv.Itoa(turn))
				var owners []any
				if k.owner >= 0 {
					o := made[key(k.owner, space, name)]
					owners = append(owners, map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": name, "uid": string(o.GetUID())})
				}
				made[key(i, space, name)] = l.apply(t, k.resource, text.String(), owners...)
			}
			if turn > k.from {
				name, now := namePrefix+strconv.Itoa(turn-1), int64(0)
				expect.NoError(t, l.client.Resource(k.resource).Namespace(space).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
			}
			if k.cluster {
				break
			}
		}
	}
}

// list asks the API server itself for all that is there.
func (l load) list(t *testing.T) (all []unstructured.Unstructured) {
	t.Helper()
	for _, k := range kinds {
		list, err := l.client.Resource(k.resource).List(t.Context(), metav1.ListOptions{LabelSelector: "followed=it"})
		if err != nil {
			if k.from > 0 {
				continue // not yet
			}
			t.Fatal(err)
		}
		all = append(all, list.Items...)
	}
	return all
}
