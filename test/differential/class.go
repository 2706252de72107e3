package differential

import "github.com/listproxy/listproxy/test/differential/cluster"

// part says which state a list asks for, and which page. For a next page Semantics is that of the first page.
type part struct {
	Semantics semantics
	Page      page
}

// class is a kind of lists, for example: in protobuf, selected by labels, in one namespace, consistent, the first page. Lists
// of different classes may take different paths through listproxy's code. So a deck asks for lists of each class, and the
// report has the classes that were compared.
type class struct {
	Representation representation
	Selector       selector
	Scope          scope
	part
}

// The values that the fields of a class can have. Not every part exists: a list at any revision, for example, has no next page.
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
		{consistent, wholeList},
		{consistent, firstPage},
		{consistent, nextPage},
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

// The semantics of lists, and watching, which stands for all watches.
const (
	anyRevision  semantics = "any"            // resourceVersion=0
	notOlderThan semantics = "not-older-than" // a resourceVersion, and resourceVersionMatch=NotOlderThan or no limit
	exact        semantics = "exact"          // resourceVersionMatch=Exact
	legacyExact  semantics = "legacy-exact"   // a resourceVersion with a limit and without a match, which means Exact
	continued    semantics = "continue"       // a continue token
	consistent   semantics = "consistent"     // no resourceVersion
	watching     semantics = "watch"
)

// changesWithTime reports whether the same request may get another answer later.
func (s semantics) changesWithTime() bool {
	return s == anyRevision || s == notOlderThan || s == consistent
}

// representation is the form of an answer.
type representation string

// The representations. forwardedForm stands for all others, which listproxy always forwards: YAML and Tables, for example.
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

// selector says by what a list selects objects.
type selector string

// The selectors.
const (
	byNothing  selector = "-"
	byLabels   selector = "labels"
	byMetadata selector = "metadata" // by metadata.name and metadata.namespace
	byFields   selector = "fields"   // by fields of the type, such as spec.nodeName
	byBoth     selector = "both"     // by labels, and by fields of the metadata or of the type
)

// scope is what a list covers.
type scope string

// The scopes.
const (
	oneNamespace  scope = "namespace"
	allNamespaces scope = "all"
	wholeCluster  scope = "cluster" // of a resource without namespaces, such as nodes
)

// page is a part of a list.
type page string

// The pages.
const (
	wholeList page = "whole" // no limit
	firstPage page = "first" // a limit, which kube-apiserver ignores for a list at anyRevision
	nextPage  page = "next"  // a continue token
)

// isPossibleFor reports whether a list of the resource can be of the class.
func (c class) isPossibleFor(r cluster.Resource) bool {
	isClusterScope := c.Scope == wholeCluster
	canSelect := c.Selector != byFields || len(r.Fields) > 0
	return r.Namespaced != isClusterScope && canSelect
}

// class returns the class of a list. ok is false for a list that is refused or forwarded in any case. It is also false for a
// next page if the semantics of the first page are not known.
func (q question) class() (_ class, ok bool) {
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
