package differential

import "github.com/listproxy/listproxy/test/differential/cluster"

// part is a page of a list, with the semantics of the first page.
type part struct {
	Semantics semantics
	Page      page
}

// class is a kind of lists. Lists of different classes may take different paths through listproxy's code. So the report has the
// classes that were compared, and a deck asks for each class.
type class struct {
	Representation representation
	Selector       selector
	Scope          scope
	part
}

// The values of the fields of classes.
var (
	representations = []representation{plainJSON, indentedJSON, protobuf, metadataJSON, metadataIndented, metadataProtobuf}
	selectors       = []selector{byNothing, byLabels, byMetadata, byFields, byBoth}
	scopes          = []scope{oneNamespace, allNamespaces, wholeCluster}
	parts           = []part{
		{anyRevision, wholeList},
		{anyRevision, firstPage},
		{notOlderThan, wholeList},
		{notOlderThan, firstPage},
		{notOlderThan, nextPage},
		{exact, wholeList},
		{exact, firstPage},
		{exact, nextPage},
		{legacyExact, firstPage},
		{legacyExact, nextPage},
		{mostRecent, wholeList},
		{mostRecent, firstPage},
		{mostRecent, nextPage},
	}
)

// classes returns all classes.
func classes() []class {
	var all []class
	for _, r := range representations {
		for _, sel := range selectors {
			for _, sc := range scopes {
				for _, p := range parts {
					all = append(all, class{Representation: r, Selector: sel, Scope: sc, part: p})
				}
			}
		}
	}
	return all
}

// semantics says which state a request asks for.
type semantics string

// The semantics of lists; watching stands for all watches. legacyExact is a resourceVersion with a limit and without a match,
// which means Exact.
const (
	anyRevision  semantics = "any"
	notOlderThan semantics = "not-older-than"
	exact        semantics = "exact"
	legacyExact  semantics = "legacy-exact"
	continued    semantics = "continue"
	mostRecent   semantics = "consistent"
	watching     semantics = "watch"
)

// changesWithTime reports whether the answer depends on when it is given.
func (s semantics) changesWithTime() bool {
	return s == anyRevision || s == notOlderThan || s == mostRecent
}

// representation is the form of an answer.
type representation string

// The representations. forwardedForm stands for all that are always forwarded.
const (
	plainJSON        representation = "json"
	indentedJSON     representation = "indented"
	protobuf         representation = "protobuf"
	metadataJSON     representation = "metadata-json"
	metadataIndented representation = "metadata-indented"
	metadataProtobuf representation = "metadata-protobuf"
	forwardedForm    representation = "odd"
)

// isMetadata reports whether objects come without spec and status.
func (r representation) isMetadata() bool {
	return r == metadataJSON || r == metadataIndented || r == metadataProtobuf
}

// isIndented reports whether the answer is indented JSON.
func (r representation) isIndented() bool { return r == indentedJSON || r == metadataIndented }

// isProtobuf reports whether the answer is in protobuf.
func (r representation) isProtobuf() bool { return r == protobuf || r == metadataProtobuf }

// selector is a kind of selectors.
type selector string

// The kinds of selectors. byMetadata selects by metadata.name and metadata.namespace, byFields by fields of the type, and
// byBoth by labels and by fields of either kind.
const (
	byNothing  selector = "-"
	byLabels   selector = "labels"
	byMetadata selector = "metadata"
	byFields   selector = "fields"
	byBoth     selector = "both"
)

// scope is what a list covers.
type scope string

// The scopes.
const (
	oneNamespace  scope = "namespace"
	allNamespaces scope = "all"
	wholeCluster  scope = "cluster"
)

// page is a part of a list.
type page string

// The pages. A list of a firstPage has a limit. (kube-apiserver ignores the limit of a list at anyRevision.)
const (
	wholeList page = "whole"
	firstPage page = "first"
	nextPage  page = "next"
)

// possibleFor reports whether a list of a resource can be of the class.
func (c class) possibleFor(r cluster.Resource) bool {
	isClusterScope := c.Scope == wholeCluster
	canSelect := c.Selector != byFields || len(r.Fields) > 0
	return r.Namespaced != isClusterScope && canSelect
}

// classOf returns the class of a list. ok is false for a list that is refused or forwarded in any case, and for a page if the
// semantics of its first page are not known.
func (q question) classOf() (_ class, ok bool) {
	c := class{
		Representation: q.Representation, Selector: q.selectorKind(), Scope: q.scopeCovered(),
		part: part{q.Semantics, wholeList},
	}
	switch {
	case q.Odd || q.Representation == forwardedForm:
		return c, false
	case q.Semantics == continued:
		c.part = part{q.Origin, nextPage}
		return c, q.Origin != ""
	case q.Query.Get("limit") != "":
		c.Page = firstPage
	}
	return c, true
}

// scopeCovered returns what the list covers.
func (q question) scopeCovered() scope {
	switch {
	case !q.Resource.Namespaced:
		return wholeCluster
	case q.Namespace != "":
		return oneNamespace
	}
	return allNamespaces
}

// selectorKind returns the kind of the label and field selectors.
func (q question) selectorKind() selector {
	hasLabels, hasFields := q.Query.Get("labelSelector") != "", q.Query.Get("fieldSelector") != ""
	switch {
	case hasLabels && hasFields:
		return byBoth
	case hasLabels:
		return byLabels
	case !hasFields:
		return byNothing
	case q.selectsTypeFields():
		return byFields
	}
	return byMetadata
}
