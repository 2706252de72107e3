package load

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// ConfigMaps and Pods are kinds of objects that the load writes. The pods have a scheduling group, a field that some API
// servers know and others drop.
var (
	ConfigMaps = kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Plural: "configmaps", Rest: `{"data":{"text":"<&>\u2028é"}}`}
	Pods       = kinds.Kind{
		APIVersion: "v1", Name: "Pod", Plural: "pods",
		Rest: `{"spec":{"schedulingGroup":{"podGroupName":"group"},"containers":[{"name":"main","image":"registry.test/main:1"}]}}`,
	}
)

// Representation is a media type of lists.
type Representation struct{ Name, Accept string }

// The representations, by the names that metrics have for them.
var (
	AsJSON     = Representation{Name: "json", Accept: ask.JSON}
	AsProtobuf = Representation{Name: "protobuf", Accept: ask.Protobuf}
	AsMetadata = Representation{Name: "metadata-json", Accept: ask.Metadata}
)

// ObjectName returns the name of the object with a number.
func ObjectName(number int) string { return fmt.Sprintf("object-%02d", number) }

// Collection is all objects of a kind in one representation. listproxy keeps each collection in memory, and feeds it by a list
// and a watch of its own.
type Collection struct {
	Kind           kinds.Kind
	Representation Representation
}

// Collections returns all collections of some kinds. Custom resources have no protobuf.
func Collections(all ...kinds.Kind) (collections []Collection) {
	for _, kind := range all {
		collections = append(collections, Collection{kind, AsJSON}, Collection{kind, AsMetadata})
		if kind.Group() == "" {
			collections = append(collections, Collection{kind, AsProtobuf})
		}
	}
	return collections
}

// GenerationLabel is a label whose value never changes. The names of objects with this label begin with its value.
const GenerationLabel = "generation"

// Question is a request for a list.
type Question struct {
	Collection
	Namespace string // "" is all namespaces
	// Generation selects objects by [GenerationLabel]; "" selects all. It is not combined with a Limit.
	Generation string
	Query      string // without the selector, in canonical form
	Limit      int    // the number of objects on a page; 0 means the whole list
	// After is the last object of the page before this one. It is the zero Identity for the first page and for a whole list.
	After ask.Identity
}

// Target returns the path with the query.
func (q Question) Target() string {
	target := q.Kind.Path(q.Namespace) + "?"
	if q.Generation != "" {
		target += "labelSelector=" + url.QueryEscape(GenerationLabel+"="+q.Generation) + "&"
	}
	return target + q.Query
}

func (q Question) String() string { return "GET " + q.Target() + " (" + q.Representation.Name + ")" }

// HasMaxAge reports whether --staleness-bound limits the age of the answer. It limits all lists except those at an exact
// revision and next pages: their revision is fixed, however old it is.
func (q Question) HasMaxAge() bool {
	return !strings.Contains(q.Query, "resourceVersionMatch=Exact") && !q.isNextPage()
}

// IsConsistent reports whether q asks for a consistent list. Its answer must have every write that was confirmed before q was
// sent.
func (q Question) IsConsistent() bool {
	return !strings.Contains(q.Query, "resourceVersion=") && !q.isNextPage()
}

// IsServedInOutage reports whether memory can answer q while no API server can be reached. It can if q asks for a list of any
// version (resourceVersion=0) or for a next page.
func (q Question) IsServedInOutage() bool {
	return strings.HasSuffix(q.Query, ask.AnyVersion) || q.isNextPage()
}

// isNextPage reports whether q asks for a page after the first.
func (q Question) isNextPage() bool { return strings.Contains(q.Query, "continue=") }

// right is what a user must be allowed to list. listproxy asks kube-apiserver for each right by one SelfSubjectAccessReview.
type right struct {
	kind                  kinds.Kind
	namespace, generation string
}

// right returns the right that the answer to q needs.
func (q Question) right() right {
	return right{kind: q.Kind, namespace: q.Namespace, generation: q.Generation}
}

// AtRevision returns the question for the same list at exactly the revision. Its answer never changes, so listproxy and
// kube-apiserver can be asked one after the other. An exact list and a next page are such questions already.
func (q Question) AtRevision(revision uint64) Question {
	switch {
	case q.Limit == 0 && q.HasMaxAge():
		q.Query = ask.Exactly(revision)
	case q.Limit > 0 && q.IsConsistent():
		q.Query = ask.FirstPage(q.Limit, ask.Exactly(revision))
	}
	return q
}

// selectPage returns the objects on the page that q asks for, and whether more pages follow. all has every object of the kind,
// in the order of keys.
func (q Question) selectPage(all []ask.Identity) (page []ask.Identity, more bool) {
	isFirst := q.After == (ask.Identity{})
	key := func(o ask.Identity) string { return o.Namespace + "/" + o.Name }
	for _, o := range all {
		// Keys are compared, since After need not be in all. A walk may get its first page from the new etcd, and the next from
		// memory, which still has the state of the etcd before it (docs/design.md).
		isOnEarlierPage := !isFirst && key(o) <= key(q.After)
		if isOnEarlierPage || !q.selects(o) {
			continue
		}
		if q.Limit > 0 && len(page) == q.Limit {
			return page, true
		}
		page = append(page, o)
	}
	return page, false
}

// selects reports whether an object is in the question's namespace and generation.
func (q Question) selects(o ask.Identity) bool {
	isInNamespace := q.Namespace == "" || o.Namespace == q.Namespace
	isInGeneration := q.Generation == "" || strings.HasPrefix(o.Name, q.Generation+"-")
	return isInNamespace && isInGeneration
}
