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
	// turns is how often the load changes; the definition of a custom resource comes with the
	// second.
	turns = 4
	// each is how many of each kind there are in a namespace.
	each = 7
	// namePrefix begins all names.
	namePrefix = "followed-"

	runs = `{"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":` + containers + `}}}`
	// containers are what a pod needs.
	containers = `{"containers":[{"name":"main","image":"example.com/main"}]}`
)

// load is what programs that follow a cluster find there: some objects of several kinds in two
// namespaces, nodes, and objects that own others. In each turn all change, one of each kind goes
// and another one comes.
type load struct{ client *ask.Client }

// followed are the kinds. Owner is the index of the kind whose object of the same name owns this kind's object,
// or -1; owners come first. From is the first turn in which a kind is written.
var followed = []struct {
	kinds.Kind
	owner, from int
}{
	{kinds.Kind{APIVersion: "v1", Name: "Node", Plural: "nodes", ClusterScoped: true}, -1, 0},
	{kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Plural: "configmaps"}, -1, 0},
	{kinds.Kind{APIVersion: "apps/v1", Name: "Deployment", Plural: "deployments", Rest: runs}, -1, 0},
	{kinds.Kind{APIVersion: "apps/v1", Name: "ReplicaSet", Plural: "replicasets", Rest: runs}, 2, 0},
	{kinds.Kind{APIVersion: "v1", Name: "Pod", Plural: "pods", Rest: `{"spec":` + containers + `}`}, 3, 0},
	{kinds.Kind{APIVersion: "programs.listproxy.test/v1", Name: "Thing", Plural: "things"}, -1, 1},
}

var spaces = []string{"programs-a", "programs-a-b"}

func newLoad(t *testing.T, cluster *rest.Config) load {
	t.Helper()
	l := load{ask.MustNew(t, cluster, patience)}
	for _, name := range spaces {
		expect.NoError(t, l.client.Ensure(t.Context(), "/api/v1/namespaces", kinds.Namespace(name)))
	}
	return l
}

// change makes a turn.
func (l load) change(t *testing.T, turn int) {
	t.Helper()
	do := func(method, target string, object any) ask.Answer {
		t.Helper()
		a, err := l.client.Do(t.Context(), method, target, object)
		expect.NoError(t, err)
		return a
	}
	if things := followed[len(followed)-1]; turn == things.from {
		do(http.MethodPost, kinds.Definitions, things.Definition())
		poll.Until(t, patience, "the custom resource is served", func() bool {
			_, err := l.client.Do(t.Context(), http.MethodGet, things.Path(""), nil)
			return err == nil
		})
	}
	uids := map[string]string{} // by path
	for _, k := range followed {
		for i, space := range spaces {
			if turn < k.from || k.ClusterScoped && i > 0 {
				continue
			}
			path := k.Path(space) + "/" + namePrefix
			for index := turn; index < turn+each; index++ {
				name := strconv.Itoa(index)
				object := k.Object(namePrefix + name)
				if k.owner >= 0 {
					owner := followed[k.owner]
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

// facts are what the API server itself says that there is.
func (l load) facts(t *testing.T) (all []string) {
	t.Helper()
	for _, k := range followed {
		a, err := l.client.Get(t.Context(), k.Path(""))
		expect.NoError(t, err)
		if a.Code == http.StatusNotFound && k.from > 0 {
			continue // not yet
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
