package programs

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// turns is the number of turns: of times that the load changes.
	turns = 4
	// objectsPerKind is the number of objects of each kind in a namespace.
	objectsPerKind = 7
	// namePrefix is the beginning of all names.
	namePrefix = "followed-"

	// workload is a Deployment or a ReplicaSet without its metadata.
	workload = `{"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":` + containers + `}}}`
	// containers is the spec of a pod.
	containers = `{"containers":[{"name":"main","image":"example.com/main"}]}`
)

// load writes objects of several kinds in two namespaces, some of which own others. In each turn all objects change, one of
// each kind is deleted, and another is created. With objectsPerKind = 7, turn 0 writes followed-0 to followed-6. Turn 1 writes
// followed-1 to followed-7, and deletes followed-0.
type load struct{ client *ask.Client }

// loadKind is a kind of the load's objects.
type loadKind struct {
	kinds.Kind
	owner     *kinds.Kind // the owner of an object is the object of this kind with the same name; nil: it has none
	firstTurn int         // the turn in which the kind is written first
}

var (
	deployments = kinds.Kind{APIVersion: "apps/v1", Name: "Deployment", Plural: "deployments", Rest: workload}
	replicaSets = kinds.Kind{APIVersion: "apps/v1", Name: "ReplicaSet", Plural: "replicasets", Rest: workload}

	// things are custom resources, which are defined in their first turn.
	things = loadKind{Kind: kinds.Kind{APIVersion: "programs.listproxy.test/v1", Name: "Thing", Plural: "things"}, firstTurn: 1}
)

// loadKinds are the kinds of the load. Owners come before what they own.
var loadKinds = []loadKind{
	{Kind: kinds.Kind{APIVersion: "v1", Name: "Node", Plural: "nodes", ClusterScoped: true}},
	{Kind: kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Plural: "configmaps"}},
	{Kind: deployments},
	{Kind: replicaSets, owner: &deployments},
	{Kind: kinds.Kind{APIVersion: "v1", Name: "Pod", Plural: "pods", Rest: `{"spec":` + containers + `}`}, owner: &replicaSets},
	things,
}

// spaces are the namespaces of the load.
var spaces = []string{"programs-a", "programs-a-b"}

// newLoad creates the namespaces of the load.
func newLoad(t *testing.T, cluster *rest.Config) load {
	t.Helper()
	l := load{ask.MustNew(t, cluster, patience)}
	for _, name := range spaces {
		expect.NoError(t, l.client.Ensure(t.Context(), "/api/v1/namespaces", kinds.Namespace(name)))
	}
	return l
}

// do sends a request of the load. An answer other than 2xx ends the test.
func (l load) do(t *testing.T, method, target string, object any) ask.Answer {
	t.Helper()
	a, err := l.client.Do(t.Context(), method, target, object)
	expect.NoError(t, err)
	return a
}

// change creates or changes the objects of a turn, and deletes the object that only the turn before had.
func (l load) change(t *testing.T, turn int) {
	t.Helper()
	if turn == things.firstTurn {
		l.do(t, http.MethodPost, kinds.Definitions, things.Definition())
		poll.Until(t, patience, "the custom resource is served", func() bool {
			_, err := l.client.Do(t.Context(), http.MethodGet, things.Path(""), nil)
			return err == nil
		})
	}
	uids := map[string]string{} // by path
	for _, k := range loadKinds {
		if turn < k.firstTurn {
			continue
		}
		for i, space := range spaces {
			if k.ClusterScoped && i > 0 {
				continue // written with the first namespace
			}
			for number := turn; number < turn+objectsPerKind; number++ {
				l.write(t, k, space, number, turn, uids)
			}
			if turn > k.firstTurn {
				l.do(t, http.MethodDelete, k.objectPath(space, turn-1)+"?gracePeriodSeconds=0", nil)
			}
		}
	}
}

// write creates an object unless it exists, changes it in any case, and adds its UID to uids.
func (l load) write(t *testing.T, k loadKind, space string, number, turn int, uids map[string]string) {
	t.Helper()
	name := namePrefix + strconv.Itoa(number)
	object := k.Object(name)
	if k.owner != nil {
		object["metadata"].(kinds.Fields)["ownerReferences"] = []kinds.Fields{{
			"apiVersion": k.owner.APIVersion, "kind": k.owner.Name, "name": name, "uid": uids[k.owner.Path(space)+"/"+name],
		}}
	}
	expect.NoError(t, l.client.Ensure(t.Context(), k.Path(space), object))
	path := k.objectPath(space, number)
	uids[path] = l.do(t, http.MethodPatch, path, kinds.Touch(strconv.Itoa(turn))).Meta().UID
}

// objectPath returns the path of the object with a number.
func (k loadKind) objectPath(space string, number int) string {
	return k.Path(space) + "/" + namePrefix + strconv.Itoa(number)
}

// facts returns the load's objects at kube-apiserver, as the cluster cache writes them.
func (l load) facts(t *testing.T) (all []string) {
	t.Helper()
	for _, k := range loadKinds {
		a, err := l.client.Get(t.Context(), k.Path(""))
		expect.NoError(t, err)
		if a.Code == http.StatusNotFound && k.firstTurn > 0 {
			continue // the definition comes later
		}
		list, err := ask.ReadList(a.Body)
		expect.NoError(t, err)
		for _, o := range list.Objects {
			if strings.HasPrefix(o.Name, namePrefix) {
				all = append(all, fmt.Sprintf("%s/%s/%s/%s %s %s", k.Group(), k.Name, o.Namespace, o.Name, o.UID, o.ResourceVersion))
			}
		}
	}
	slices.Sort(all)
	return all
}
