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

// Collection is what listproxy keeps in memory, with one feed for each.
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
	Limit      int    // the number of objects on a page; 0 is no pages
	// After is the last object of the page before, and zero for the first page.
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

// BoundsAge reports whether the answer must not be older than --staleness-bound: unless it is a list at an exact revision, or a
// next page.
func (q Question) BoundsAge() bool {
	return !strings.Contains(q.Query, "resourceVersionMatch=Exact") && !q.isNextPage()
}

// Consistent reports whether the answer must hold everything that was written before it was asked for.
func (q Question) Consistent() bool {
	return !strings.Contains(q.Query, "resourceVersion=") && !q.isNextPage()
}

// ServedInOutage reports whether memory can answer while no API server can be reached: a list of any version, and a next page.
func (q Question) ServedInOutage() bool {
	return strings.HasSuffix(q.Query, ask.AnyVersion) || q.isNextPage()
}

// isNextPage reports whether q asks for a page after the first.
func (q Question) isNextPage() bool { return strings.Contains(q.Query, "continue=") }

// right is what a SelfSubjectAccessReview for a question asks about.
type right struct {
	kind                  kinds.Kind
	namespace, generation string
}

func (q Question) right() right {
	return right{kind: q.Kind, namespace: q.Namespace, generation: q.Generation}
}

// AtRevision returns the question for the same list at exactly a revision, whose answer never changes. An exact list and a next
// page are such questions already.
func (q Question) AtRevision(revision uint64) Question {
	switch {
	case q.Limit == 0 && q.BoundsAge():
		q.Query = ask.Exactly(revision)
	case q.Limit > 0 && q.Consistent():
		q.Query = ask.FirstPage(q.Limit, ask.Exactly(revision))
	}
	return q
}

// selectPage returns the objects that the answer has if these are all objects, and whether more pages follow.
func (q Question) selectPage(all []ask.Identity) (page []ask.Identity, more bool) {
	isFirst := q.After == (ask.Identity{})
	key := func(o ask.Identity) string { return o.Namespace + "/" + o.Name }
	for _, o := range all {
		// The pages before are told by keys, not by the position of After: until listproxy learns that etcd was replaced, a
		// walk that began on the new timeline may continue in the old one (docs/design.md).
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
