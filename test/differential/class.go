package differential

import (
	"slices"
)

// Representation is the form of an answer.
type Representation string

// The representations; Odd stands for all that are forwarded. JSON comes indented as well.
const (
	JSON             Representation = "json"
	Indented         Representation = "indented"
	Protobuf         Representation = "protobuf"
	MetadataJSON     Representation = "metadata-json"
	MetadataIndented Representation = "metadata-indented"
	MetadataProtobuf Representation = "metadata-protobuf"
	OddForm          Representation = "odd"
)

// Representations returns those that are to be answered from memory.
func Representations() []Representation { return slices.Clone(representations) }

// metadata is true if objects come without spec and status.
func (r Representation) metadata() bool {
	return r == MetadataJSON || r == MetadataIndented || r == MetadataProtobuf
}

func (r Representation) indented() bool { return r == Indented || r == MetadataIndented }

// Selector is a kind of selectors.
type Selector string

// The kinds of selectors. Metadata is metadata.name and metadata.namespace, Fields are those of the
// type (and maybe the former), Both is a label selector with a field selector of either kind.
const (
	None     Selector = "-"
	Labels   Selector = "labels"
	Metadata Selector = "metadata"
	Fields   Selector = "fields"
	Both     Selector = "both"
)

// Scope is what a list is of.
type Scope string

// The scopes.
const (
	OneNamespace  Scope = "namespace"
	AllNamespaces Scope = "all"
	WholeCluster  Scope = "cluster"
)

// Page is which part of a list.
type Page string

// The pages: First has a limit (which an Any ignores), Whole has none.
const (
	Whole Page = "whole"
	First Page = "first"
	Next  Page = "next"
)

// Class is a kind of questions, as far as listproxy may go a way of its own with them.
type Class struct {
	Representation Representation
	Selector       Selector
	Scope          Scope
	Semantics      Semantics // of the first page
	Page           Page
}

// moment is a semantics and a page.
type moment struct {
	semantics Semantics
	page      Page
}

// What classes are made of.
var (
	representations = []Representation{JSON, Indented, Protobuf, MetadataJSON, MetadataIndented, MetadataProtobuf}
	selectorKinds   = []Selector{None, Labels, Metadata, Fields, Both}
	scopes          = []Scope{OneNamespace, AllNamespaces, WholeCluster}
	moments         = []moment{
		{Any, Whole},
		{Any, First},
		{NotOlderThan, Whole},
		{NotOlderThan, First},
		{NotOlderThan, Next},
		{Exact, Whole},
		{Exact, First},
		{Exact, Next},
		{Legacy, First},
		{Legacy, Next},
		{MostRecent, Whole},
		{MostRecent, First},
		{MostRecent, Next},
	}
)

// Class returns the question's class; it has none if it is odd.
func (q Question) Class() (Class, bool) {
	class := Class{Representation: q.Representation, Selector: q.selector(), Scope: q.scope(), Semantics: q.Semantics, Page: Whole}
	switch {
	case q.Odd || q.Representation == OddForm:
		return class, false
	case q.Semantics == Continue:
		class.Semantics, class.Page = q.Origin, Next
		return class, q.Origin != ""
	case q.Query.Get("limit") != "":
		class.Page = First
	}
	return class, true
}

func (q Question) scope() Scope {
	switch {
	case !q.Resource.Namespaced:
		return WholeCluster
	case q.Namespace != "":
		return OneNamespace
	}
	return AllNamespaces
}

func (q Question) selector() Selector {
	labels, fields := q.Query.Get("labelSelector") != "", q.Query.Get("fieldSelector")
	switch {
	case labels && fields != "":
		return Both
	case labels:
		return Labels
	case fields == "":
		return None
	case q.typeFields():
		return Fields
	}
	return Metadata
}
