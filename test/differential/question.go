package differential

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/differential/cluster"
)

// question is a request for a list or a watch.
type question struct {
	Resource  cluster.Resource
	Namespace string // "" for the whole resource
	Path      string // instead of the resource's own, if not empty
	Query     url.Values
	RawQuery  string // follows the query as it stands
	User      cluster.User
	Header    http.Header
	HTTP1     bool
	Semantics semantics
	// Origin is the semantics of the first page, on the pages that follow it.
	Origin semantics
	// Representation that the Accept header asks for.
	Representation representation
	// Revision that was asked for, if any.
	Revision uint64
	// Odd is true if the question may be refused, or read in more ways than one.
	Odd bool
	// Clocked is true if the answer holds ages, which are not compared.
	Clocked bool
}

// exactly is the question for a list at a revision, in JSON.
func exactly(r cluster.Resource, namespace string, user cluster.User, revision uint64) question {
	return question{
		Resource: r, Namespace: namespace, User: user, Semantics: exact, Representation: plainJSON, Revision: revision, Header: http.Header{},
		Query: url.Values{"resourceVersion": {strconv.FormatUint(revision, 10)}, "resourceVersionMatch": {"Exact"}},
	}
}

func (q question) target() string {
	target := q.Path
	if target == "" {
		target = q.Resource.Path(q.Namespace)
	}
	query := q.Query.Encode()
	if query != "" && q.RawQuery != "" {
		query += "&"
	}
	if query += q.RawQuery; query != "" {
		target += "?" + query
	}
	return target
}

// String is for reports; it holds no token.
func (q question) String() string {
	protocol := "HTTP/2"
	if q.HTTP1 {
		protocol = "HTTP/1.1"
	}
	return fmt.Sprintf("GET %s as %s over %s %v (%s)", q.target(), q.User.Name, protocol, q.Header, q.Semantics)
}

// at returns the question for the same list at exactly a revision. pagesAny reports whether a list at any revision
// that names a limit was a page.
func (q question) at(revision uint64, pagesAny bool) question {
	query := maps.Clone(q.Query)
	if token := q.Query.Get("continue"); token != "" {
		// A token without a revision of its own (-1): the same start at this one.
		if t, err := body.DecodeToken(token); err == nil {
			t.Revision = int64(revision)
			query.Set("continue", t.Encode())
		}
	} else {
		query.Set("resourceVersion", strconv.FormatUint(revision, 10))
		query.Set("resourceVersionMatch", "Exact")
	}
	if q.Semantics == anyRevision && !pagesAny {
		// kube-apiserver's cache ignores the limit there, and so does memory.
		query.Del("limit")
	}
	q.Query = query
	return q
}

// effective is the semantics that the API server gives the question: it reads a single key
// (metadata.name=) from etcd as it is now where a limit alone asks for a revision
// (storage.ValidateListOptions).
func (q question) effective() semantics {
	if q.Semantics == legacyExact && q.single() {
		return mostRecent
	}
	return q.Semantics
}

// exactField returns the value that the field selector requires of a field.
func (q question) exactField(field string) (string, bool) {
	parsed, err := fields.ParseSelector(q.Query.Get("fieldSelector"))
	if err != nil {
		return "", false
	}
	return parsed.RequiresExactMatch(field)
}

// narrowed returns the namespace whose objects the API server reads: a field selector can leave one
// of all of them, but not on a page that follows another (registry.Store.ListPredicate).
func (q question) narrowed() string {
	if q.Namespace != "" || !q.Resource.Namespaced || q.Query.Get("continue") != "" {
		return q.Namespace
	}
	namespace, ok := q.exactField(namespaceField)
	if !ok || len(validation.ValidateNamespaceName(namespace, false)) > 0 {
		return ""
	}
	return namespace
}

// single reports whether the API server reads a single key.
func (q question) single() bool {
	if q.Query.Get("continue") != "" || q.Resource.Namespaced && q.narrowed() == "" {
		return false
	}
	name, ok := q.exactField(nameField)
	return ok && name != "" && len(content.IsPathSegmentName(name)) == 0
}

// indexed returns the node, if kube-apiserver takes the page from its index of pods by node.
func (q question) indexed() (node string, ok bool) {
	limited := q.Query.Get("limit") != "" || strings.Contains(q.RawQuery, "limit=")
	if q.Resource.Resource != "pods" || !limited || q.Semantics != notOlderThan && q.Semantics != mostRecent {
		return "", false
	}
	if node, ok = q.exactField(cluster.NodeNameField); !ok {
		node, ok = q.exactField("spec.host") // its old name
	}
	return node, ok
}

// typeFields reports whether the type's own fields are selected by.
func (q question) typeFields() bool {
	parsed, err := fields.ParseSelector(q.Query.Get("fieldSelector"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(parsed.Requirements(), func(r fields.Requirement) bool {
		return r.Field != nameField && r.Field != namespaceField
	})
}

// memory reports whether listproxy is to answer from memory.
func (q question) memory() bool {
	switch {
	case !q.Resource.Cached, !q.User.Lists(q.Resource, q.Namespace), q.Namespace != "" && !q.Resource.Namespaced:
		return false
	case q.Odd, q.Representation == oddForm, q.effective() != q.Semantics:
		return false
	case q.Representation.metadata() && q.typeFields():
		return false // a collection of metadata does not hold the fields of the type
	case q.Query.Has("shardSelector") && (q.Representation.metadata() || q.Resource.Group == cluster.Group):
		return false // these lists have no shardInfo
	case q.Resource.JSONOnly && q.Representation.protobuf():
		return false // listproxy does not know which clause the API server takes
	case q.Query.Get("labelSelector") != "" && strings.TrimSpace(q.Query.Get("labelSelector")) == "":
		return false // a selector that is written, and selects everything
	}
	if name, ok := q.exactField(nameField); ok && name == "" {
		return false // looked for in the whole range, and in vain
	}
	// kube-apiserver reads the first page in the namespace, and the next from the whole resource.
	if _, ok := q.exactField(namespaceField); ok && q.scope() == allNamespaces {
		return q.Query.Get("limit") == "" && q.Query.Get("continue") == ""
	}
	return true
}
