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
	// What is sent.

	Resource  cluster.Resource
	Namespace string // "" for the whole resource
	Path      string // replaces the resource's path, unless ""
	Query     url.Values
	RawQuery  string // appended to the query as it is
	User      cluster.User
	Header    http.Header
	HTTP1     bool

	// What the comparison knows of the question.

	Semantics semantics
	// Origin is, for a next page, the semantics of the first page.
	Origin semantics
	// Representation is the one that the Accept header asks for.
	Representation representation
	// Revision is the revision that the question names, or 0.
	Revision uint64
	// Odd means that the question may be refused, or read in more ways than one. listproxy may forward it.
	Odd bool
	// HasAges means that the answer is a Table, in which the ages of objects differ from one answer to the next.
	HasAges bool
}

// exactly returns the question for a list at a revision, in JSON.
func exactly(r cluster.Resource, namespace string, user cluster.User, revision uint64) question {
	return question{
		Resource: r, Namespace: namespace, User: user, Semantics: exact, Representation: plainJSON, Revision: revision, Header: http.Header{},
		Query: url.Values{"resourceVersion": {strconv.FormatUint(revision, 10)}, "resourceVersionMatch": {"Exact"}},
	}
}

// target returns the path and the query as they are sent.
func (q question) target() string {
	target := q.Path
	if target == "" {
		target = q.Resource.Path(q.Namespace)
	}
	query := q.Query.Encode()
	if query != "" && q.RawQuery != "" {
		query += "&"
	}
	query += q.RawQuery
	if query != "" {
		target += "?" + query
	}
	return target
}

// String returns the question for a report, without credentials.
func (q question) String() string {
	protocol := "HTTP/2"
	if q.HTTP1 {
		protocol = "HTTP/1.1"
	}
	return fmt.Sprintf("GET %s as %s over %s %v (%s)", q.target(), q.User.Name, protocol, q.Header, q.Semantics)
}

// atRevision returns the question for the same list at exactly the revision. obeysLimitAtZero means that the limit of a list at
// anyRevision was obeyed, as by a kube-apiserver without a watch cache.
func (q question) atRevision(revision uint64, obeysLimitAtZero bool) question {
	query := maps.Clone(q.Query)
	if token := q.Query.Get("continue"); token != "" {
		// A token of revision -1, which means the newest, gets this revision. Its start stays.
		if decoded, err := body.DecodeToken(token); err == nil {
			decoded.Revision = int64(revision)
			query.Set("continue", decoded.Encode())
		}
	} else {
		query.Set("resourceVersion", strconv.FormatUint(revision, 10))
		query.Set("resourceVersionMatch", "Exact")
	}
	if q.Semantics == anyRevision && !obeysLimitAtZero {
		// kube-apiserver's cache ignores this limit, and so does listproxy.
		query.Del("limit")
	}
	q.Query = query
	return q
}

// effectiveSemantics returns the semantics by which kube-apiserver answers. They differ from those that the question names in
// one case: a legacyExact list of a single key (metadata.name=) is read from etcd at the newest revision, and the revision that
// it names is only a lower bound (storage/etcd3).
func (q question) effectiveSemantics() semantics {
	if q.Semantics == legacyExact && q.readsSingleKey() {
		return consistent
	}
	return q.Semantics
}

// parseFields returns the field selector, or one that requires nothing if it cannot be read.
func (q question) parseFields() fields.Selector {
	parsed, err := fields.ParseSelector(q.Query.Get("fieldSelector"))
	if err != nil {
		return fields.Everything()
	}
	return parsed
}

// exactField returns the value that the field selector requires of a field.
func (q question) exactField(field string) (string, bool) {
	return q.parseFields().RequiresExactMatch(field)
}

// namespaceRead returns the namespace whose objects kube-apiserver reads, or "" for all. A field selector narrows a list of all
// namespaces to one, but not a later page (registry.Store.ListPredicate).
func (q question) namespaceRead() string {
	if q.Namespace != "" || !q.Resource.Namespaced || q.Query.Get("continue") != "" {
		return q.Namespace
	}
	namespace, ok := q.exactField(namespaceField)
	if !ok || len(validation.ValidateNamespaceName(namespace, false)) > 0 {
		return ""
	}
	return namespace
}

// readsSingleKey reports whether kube-apiserver reads a single key of etcd, that of an object which the field selector names.
func (q question) readsSingleKey() bool {
	isLaterPage := q.Query.Get("continue") != ""
	isOfManyNamespaces := q.Resource.Namespaced && q.namespaceRead() == ""
	if isLaterPage || isOfManyNamespaces {
		return false
	}
	name, ok := q.exactField(nameField)
	return ok && name != "" && len(content.IsPathSegmentName(name)) == 0
}

// indexedNode returns the node whose pods kube-apiserver takes from its index of pods by node. ok is false for other lists.
func (q question) indexedNode() (node string, ok bool) {
	hasLimit := q.Query.Get("limit") != "" || strings.Contains(q.RawQuery, "limit=")
	readsCache := q.Semantics == notOlderThan || q.Semantics == consistent
	if q.Resource.Resource != "pods" || !hasLimit || !readsCache {
		return "", false
	}
	if node, ok = q.exactField(cluster.NodeNameField); !ok {
		node, ok = q.exactField("spec.host") // its old name
	}
	return node, ok
}

// selectsTypeFields reports whether the field selector names fields that only this type has.
func (q question) selectsTypeFields() bool {
	return slices.ContainsFunc(q.parseFields().Requirements(), func(r fields.Requirement) bool {
		return r.Field != nameField && r.Field != namespaceField
	})
}

// shouldHit reports whether listproxy should answer a list from memory, as doc.go describes.
func (q question) shouldHit() bool {
	switch {
	case !q.Resource.Cached, !q.User.ListsFromMemory(q.Resource, q.Namespace):
		return false
	case q.Namespace != "" && !q.Resource.Namespaced:
		return false // there is no such path
	case q.Odd, q.Representation == forwardedForm:
		return false
	case q.effectiveSemantics() != q.Semantics:
		return false // kube-apiserver reads a single key at the newest revision
	case q.Representation.isMetadata() && q.selectsTypeFields():
		return false // a collection of metadata does not hold the fields of the type
	case q.Query.Has("shardSelector") && (q.Representation.isMetadata() || q.Resource.Group == cluster.Group):
		return false // these lists have no shardInfo
	case q.Resource.JSONOnly && q.Representation.isProtobuf():
		return false // listproxy cannot know which clause of the Accept header kube-apiserver takes
	case q.Query.Get("labelSelector") != "" && strings.TrimSpace(q.Query.Get("labelSelector")) == "":
		return false // the selector is blank, and so selects everything
	}
	if name, ok := q.exactField(nameField); ok && name == "" {
		return false // metadata.name= with an empty name: kube-apiserver reads all objects
	}
	// kube-apiserver reads the first page in the namespace, and the next from the whole resource.
	if _, ok := q.exactField(namespaceField); ok && q.scopeCovered() == allNamespaces {
		return q.Query.Get("limit") == "" && q.Query.Get("continue") == ""
	}
	return true
}
