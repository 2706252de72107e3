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
	// turns is the number of times for which the load changes.
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

// load has objects of several kinds in two namespaces, some of which own others. In each turn all objects change, one of each
// kind is deleted, and another is created.
type load struct{ client *ask.Client }

// loadKind is a kind of the load's objects.
type loadKind struct {
	kinds.Kind
	owner int // the index of the kind whose object of the same name is the owner, or noOwner
	from  int // the first turn in which the kind is written
}

const noOwner = -1

// loadKinds are the kinds of the load. Owners come before what they own.
var loadKinds = []loadKind{
	{Kind: kinds.Kind{APIVersion: "v1", Name: "Node", Plural: "nodes", ClusterScoped: true}, owner: noOwner},
	{Kind: kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Plural: "configmaps"}, owner: noOwner},
	{Kind: kinds.Kind{APIVersion: "apps/v1", Name: "Deployment", Plural: "deployments", Rest: workload}, owner: noOwner},
	{Kind: kinds.Kind{APIVersion: "apps/v1", Name: "ReplicaSet", Plural: "replicasets", Rest: workload}, owner: 2},
	{Kind: kinds.Kind{APIVersion: "v1", Name: "Pod", Plural: "pods", Rest: `{"spec":` + containers + `}`}, owner: 3},
	{Kind: kinds.Kind{APIVersion: "programs.listproxy.test/v1", Name: "Thing", Plural: "things"}, owner: noOwner, from: 1},
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

// change writes the objects of a turn.
func (l load) change(t *testing.T, turn int) {
	t.Helper()
	do := func(method, target string, object any) ask.Answer {
		t.Helper()
		a, err := l.client.Do(t.Context(), method, target, object)
		expect.NoError(t, err)
		return a
	}
	if things := loadKinds[len(loadKinds)-1]; turn == things.from {
		do(http.MethodPost, kinds.Definitions, things.Definition())
		poll.Until(t, patience, "the custom resource is served", func() bool {
			_, err := l.client.Do(t.Context(), http.MethodGet, things.Path(""), nil)
			return err == nil
		})
	}
	uids := map[string]string{} // by path
	for _, k := range loadKinds {
		for i, space := range spaces {
			if turn < k.from || k.ClusterScoped && i > 0 {
				continue
			}
			path := k.Path(space) + "/" + namePrefix
			for index := turn; index < turn+objectsPerKind; index++ {
				name := strconv.Itoa(index)
				object := k.Object(namePrefix + name)
				if k.owner != noOwner {
					owner := loadKinds[k.owner]
					object["metadata"].(kinds.Fields)["ownerReferences"] = []kinds.Fields{{
						"apiVersion": owner.APIVersion, "kind": owner.Name, "name": namePrefix + name, "uid": uids[owner.Path(space)+"/"+namePrefix+name],
					}}
				}
				expect.NoError(t, l.client.Ensure(t.Context(), k.Path(space), object))
				uids[path+name] = do(http.MethodPatch, path+name, kinds.Touch(strconv.Itoa(turn))).Meta().UID
			}
			if turn > k.from {
				do(http.MethodDelete, path+strconv.Itoa(turn-1)+"?gracePeriodSeconds=0", nil)
			}
		}
	}
}

// facts returns the load's objects at kube-apiserver, as the cluster cache writes them.
func (l load) facts(t *testing.T) (all []string) {
	t.Helper()
	for _, k := range loadKinds {
		a, err := l.client.Get(t.Context(), k.Path(""))
		expect.NoError(t, err)
		if a.Code == http.StatusNotFound && k.from > 0 {
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
