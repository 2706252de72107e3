package load

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// Kinds that change. Some API servers know the scheduling group of a pod, and others drop it.
var (
	ConfigMaps = kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Plural: "configmaps", Rest: `{"data":{"text":"<&>\u2028é"}}`}
	Pods       = kinds.Kind{APIVersion: "v1", Name: "Pod", Plural: "pods", Rest: `{"spec":{"schedulingGroup":{"podGroupName":"group"},"containers":[{"name":"main","image":"registry.test/main:1"}]}}`}
)

// Form is a representation of a list.
type Form struct{ Name, Accept string }

// The forms, by the names that metrics have for them.
var (
	AsJSON     = Form{"json", ask.JSON}
	AsProtobuf = Form{"protobuf", ask.Protobuf}
	AsMetadata = Form{"metadata-json", ask.Metadata}
)

// NameOf is the name of one of the objects that change.
func NameOf(i int) string { return fmt.Sprintf("object-%02d", i) }

// Collection is what listproxy keeps, with a feed for each.
type Collection struct {
	Kind kinds.Kind
	Form Form
}

// Collections are those of some kinds: custom ones have no protobuf.
func Collections(of ...kinds.Kind) (all []Collection) {
	for _, k := range of {
		all = append(all, Collection{k, AsJSON}, Collection{k, AsMetadata})
		if k.Group() == "" {
			all = append(all, Collection{k, AsProtobuf})
		}
	}
	return all
}

// GenerationLabel is on objects that are selected by their generation.
const GenerationLabel = "generation"

// Question is a list that is asked for.
type Question struct {
	Collection
	Namespace string
	// Generation selects objects by their label, with which their names begin and which never changes;
	// "": all. There is none of pages.
	Generation string
	Query      string // in canonical form
	Limit      int    // 0: none
	// After is the last object of the page before; zero at the first page.
	After ask.Identity
}

// Target is the path with the query.
func (q Question) Target() string {
	target := q.Kind.Path(q.Namespace) + "?"
	if q.Generation != "" {
		target += "labelSelector=" + url.QueryEscape(GenerationLabel+"="+q.Generation) + "&"
	}
	return target + q.Query
}

func (q Question) String() string { return "GET " + q.Target() + " (" + q.Form.Name + ")" }

// Newest reports whether the list is the newest that its server knows, whatever else it demands:
// these have an age.
func (q Question) Newest() bool {
	return !strings.Contains(q.Query, "resourceVersionMatch=Exact") && !strings.Contains(q.Query, "continue=")
}

// Recent reports whether the list is to hold everything that was written before it was asked for.
func (q Question) Recent() bool {
	return !strings.Contains(q.Query, "resourceVersion=") && !strings.Contains(q.Query, "continue=")
}

// right is what a review asks about.
type right struct {
	kind                  kinds.Kind
	namespace, generation string
}

func (q Question) right() right { return right{q.Kind, q.Namespace, q.Generation} }

// Known reports whether memory can answer while nobody answers upstream: any version, and the next page of a list.
func (q Question) Known() bool {
	return strings.HasSuffix(q.Query, ask.AnyVersion) || strings.Contains(q.Query, "continue=")
}

// At returns the question whose answer is the same for ever.
func (q Question) At(revision uint64) Question {
	switch {
	case q.Limit == 0 && q.Newest():
		q.Query = ask.Exactly(revision)
	case q.Limit > 0 && q.Recent():
		q.Query = ask.FirstPage(q.Limit, ask.Exactly(revision))
	}
	return q
}

// choose returns what a list holds of all objects, and whether more follow.
func (q Question) choose(all []ask.Identity) (chosen []ask.Identity, more bool) {
	first := q.After == (ask.Identity{})
	key := func(o ask.Identity) string { return o.Namespace + "/" + o.Name }
	for _, o := range all {
		switch {
		case q.Namespace != "" && o.Namespace != q.Namespace:
		case q.Generation != "" && !strings.HasPrefix(o.Name, q.Generation+"-"):
		// Until listproxy has heard of a replaced past, a walk that began in the new one may go on
		// in the old one (docs/design.md): a token says after which key.
		case !first && key(o) <= key(q.After):
		case q.Limit > 0 && len(chosen) == q.Limit:
			return chosen, true
		default:
			chosen = append(chosen, o)
		}
	}
	return chosen, false
}
